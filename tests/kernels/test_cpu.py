"""A loop of small ops runs on one thread, and nobody notices afterwards."""

import pytest
import torch

from statewise.kernels import cpu
from statewise.kernels.cpu import ENOUGH, by_expm1, tanh_of_half_, threads_for
from statewise.nn import GRU, RNN


@pytest.fixture(autouse=True)
def _two_threads() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_small_products_get_one_thread_and_large_ones_all() -> None:
    with threads_for(ENOUGH - 1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with threads_for(ENOUGH):
        assert torch.get_num_threads() == 2


def test_threads_come_back_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="on purpose"), threads_for(1):
        raise RuntimeError("on purpose")
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("layer", [GRU, RNN])
def test_a_training_step_leaves_the_threads_as_they_were(
    layer: type[GRU] | type[RNN], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = torch.set_num_threads
    monkeypatch.setattr(torch, "set_num_threads", lambda count: (seen.append(count), real(count)))
    module = layer(8, 8)
    x = torch.zeros(40, 2, 8)
    assert module.choice(x).implementation == "batched"
    module(x)[0].sum().backward()
    assert seen == [1, 2, 1, 2], "one thread for each of the two loops"
    assert torch.get_num_threads() == 2
    monkeypatch.setattr(cpu, "ENOUGH", 1)
    module(x)[0].sum().backward()
    assert len(seen) == 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_tanh_by_expm1_keeps_the_digits_of_small_numbers(dtype: torch.dtype) -> None:
    sizes = torch.logspace(-20, 3, 4001, dtype=dtype)
    a = torch.cat([sizes, -sizes])
    found = tanh_of_half_(2 * a, torch.tensor(1.0, dtype=dtype)).double()
    assert ((found - torch.tanh(a.double())) / torch.tanh(a.double())).abs().max() <= 2 * torch.finfo(dtype).eps
    edges = torch.tensor([0.0, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    assert torch.equal(tanh_of_half_(2 * edges, torch.tensor(1.0, dtype=dtype))[:3], torch.tanh(edges)[:3])
    assert by_expm1(1 << 20, dtype)


@pytest.mark.parametrize("layer", [RNN, GRU])
def test_twins_keep_the_digits_of_small_activations(layer: type[RNN] | type[GRU]) -> None:
    """Activations of 1e-5: relative to the largest, at most three times as far from float64 as torch.nn."""
    torch.manual_seed(0)
    ours = layer(64, 64)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.mul_(1e-4)
    theirs = getattr(torch.nn, layer.__name__)(64, 64)
    theirs.load_state_dict(ours.state_dict())
    x = 1e-2 * torch.randn(16, 64, 64)
    assert ours.choice(x).implementation == "batched"
    found, plain = (module(x)[0].detach().double() for module in (ours, theirs))
    exact = theirs.double()(x.double())[0].detach()
    assert (found - exact).abs().max() <= 3 * (plain - exact).abs().max()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_not_in_half_precision(dtype: torch.dtype) -> None:
    assert not by_expm1(1 << 20, dtype)

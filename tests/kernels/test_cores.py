"""A loop of small ops runs on one thread, and nobody notices afterwards."""

import pytest
import torch

from statewise.kernels import cores
from statewise.kernels.bend import by_sigmoid, tanh_of_half_
from statewise.kernels.cores import ENOUGH, threads_for
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
    monkeypatch.setattr(cores, "ENOUGH", 1)
    module(x)[0].sum().backward()
    assert len(seen) == 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_tanh_by_the_sigmoid(dtype: torch.dtype) -> None:
    a = torch.linspace(-30, 30, 2001, dtype=dtype)
    found = tanh_of_half_(2 * a, torch.tensor(-1.0, dtype=dtype))
    assert (found.double() - torch.tanh(a.double())).abs().max() <= 2 * torch.finfo(dtype).eps
    assert by_sigmoid(1 << 20, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_not_in_half_precision(dtype: torch.dtype) -> None:
    assert not by_sigmoid(1 << 20, dtype)

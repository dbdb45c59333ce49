"""The parallel scan against the loop."""

import pytest
import torch
from forms import BATCH, TIMES, difference, noise, ragged
from torch import Tensor

from statewise.kernels.scan import naive, parallel, scan

WIDTH = 6


@pytest.fixture(params=[0, 10**9], ids=["one by one", "in chunks"], autouse=True)
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the size of a step decides; both ways are tried at every size."""
    monkeypatch.setattr(parallel, "LARGE_STEP", request.param)


def by_loop(inputs: list[Tensor], states: list[Tensor], lengths_B: Tensor | None) -> tuple[Tensor, ...]:
    return naive.scan(*inputs, *states, lengths_B)


def in_parallel(inputs: list[Tensor], states: list[Tensor], lengths_B: Tensor | None) -> tuple[Tensor, ...]:
    return parallel.scan(*inputs, *states, lengths_B)


def case(time: int, *, push: float = 1.0) -> tuple[list[Tensor], list[Tensor]]:
    """Gates in (0, 1), the nearer to their ends the larger `push`; inputs and state of both signs."""
    a_BTD = torch.sigmoid(noise(BATCH, time, WIDTH, seed=1, scale=push))
    return [a_BTD, noise(BATCH, time, WIDTH, seed=2)], [noise(BATCH, WIDTH, seed=3)]


@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("time", TIMES)
def test_parallel_is_the_loop(time: int, rows: str) -> None:
    assert difference(in_parallel, by_loop, *case(time), ragged(time) if rows == "ragged" else None) <= 1e-12


@pytest.mark.parametrize("push", [30.0, 3000.0], ids=["nearly shut", "shut"])
def test_gates_at_their_ends(push: float) -> None:
    """Where a product of gates underflows, a form that divides by it or takes its logarithm would break."""
    inputs, states = case(300, push=push)
    assert (inputs[0].log().sum(1) < -1e3).all()
    assert difference(in_parallel, by_loop, inputs, states) <= 1e-12


def test_padding_is_not_read() -> None:
    inputs, states = case(7)
    past_BT = torch.arange(7) >= ragged(7)[:, None]
    dirty = [value.masked_fill(past_BT[:, :, None], float("nan")).requires_grad_() for value in inputs]
    y_BTD, h_BD = parallel.scan(*dirty, *states, ragged(7))
    clean_y_BTD, clean_h_BD = parallel.scan(*inputs, *states, ragged(7))
    assert torch.equal(y_BTD, clean_y_BTD)
    assert torch.equal(h_BD, clean_h_BD)
    for gradient in torch.autograd.grad(y_BTD.sum() + h_BD.sum(), dirty):
        assert (gradient[past_BT] == 0).all()


def test_its_gradient_can_be_differentiated_again() -> None:
    inputs, states = case(5)
    tensors = [value[:2, :, :2].clone().requires_grad_() for value in inputs]
    tensors.append(states[0][:2, :2].clone().requires_grad_())

    def run(a: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        return parallel.scan(a, b, h, None)

    assert torch.autograd.gradcheck(run, tensors)
    assert torch.autograd.gradgradcheck(run, tensors)


def test_half_precision_is_wide_inside_and_stays_wide() -> None:
    inputs, states = case(64)
    half = [value.bfloat16() for value in (*inputs, *states)]
    y_BTD, h_BD = scan(*half)
    assert y_BTD.dtype == h_BD.dtype == torch.float32
    exact_BTD, _ = scan(*(value.double() for value in half))
    torch.testing.assert_close(y_BTD.double(), exact_BTD, rtol=2**-20, atol=1e-6)

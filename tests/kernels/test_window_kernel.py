"""The window by convolution against the equation: outputs, final state, every gradient; odd lengths on purpose."""

import pytest
import torch
from torch import Tensor

from statewise.kernels.window import Activation, WindowWeights, fused, naive

BATCH, INPUT, HIDDEN, WIDTH = 4, 3, 5, 2


def results(run, order: int, time: int, lengths: list[int] | None, activation: Activation) -> list[Tensor]:
    generator = torch.Generator().manual_seed(time)

    def leaf(*shape: int) -> Tensor:
        return (0.6 * torch.randn(*shape, dtype=torch.float64, generator=generator)).requires_grad_()

    x, past = leaf(BATCH, time, INPUT), leaf(BATCH, order - 1, INPUT)
    weights = [leaf(HIDDEN, INPUT, order), leaf(HIDDEN), leaf(WIDTH, HIDDEN), leaf(WIDTH)]
    lengths_B = None if lengths is None else torch.tensor(lengths)
    y, after = run(x, past, WindowWeights(*weights, activation), lengths_B)
    total = sum((part * torch.randn(part.shape, dtype=part.dtype, generator=generator)).sum() for part in (y, after))
    gradients = torch.autograd.grad(total, [x, past, *weights], allow_unused=True, materialize_grads=True)
    return [y.detach(), after.detach(), *gradients]


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu", "linear"])
@pytest.mark.parametrize("order", [1, 2, 7])
@pytest.mark.parametrize("time", [1, 2, 63, 64, 65])
def test_full_rows(order: int, time: int, activation: Activation) -> None:
    fast, slow = (results(run, order, time, None, activation) for run in (fused.window, naive.window))
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lengths", [[0, 1, 9, 5], [9, 9, 9, 9], [0, 0, 0, 0], [2, 12, 3, 1]], ids=str)
@pytest.mark.parametrize("order", [1, 4, 12])
def test_ragged_rows(order: int, lengths: list[int]) -> None:
    fast, slow = (results(run, order, 9, lengths, "tanh") for run in (fused.window, naive.window))
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)

"""What every comparison here needs: a random case, a run with all gradients, and a strict way to be equal."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

TOLERANCE = 1e-12


def noise(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def fill(module: torch.nn.Module, *, seed: int = 0, scale: float = 0.4) -> None:
    """Every parameter random, biases and gains too: one that is 0 hides its own mistakes."""
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(noise(*parameter.shape, seed=1000 * seed + number, scale=scale))


class Results(NamedTuple):
    y: Tensor
    after: list[Tensor]
    x_gradient: Tensor
    state_gradients: list[Tensor]
    weight_gradients: dict[str, Tensor]


Run = Callable[[Tensor, Sequence[Tensor]], tuple[Tensor, Sequence[Tensor]]]


def run_with_gradients(run: Run, module: torch.nn.Module, x: Tensor, state: Sequence[Tensor]) -> Results:
    """Outputs, final state, and gradients of a fixed random sum of both by inputs, initial state and weights."""
    x = x.clone().requires_grad_()
    state = [part.clone().requires_grad_() for part in state]
    module.zero_grad()
    y, after = run(x, state)
    total = sum((part * noise(*part.shape, seed=90 + n)).sum() for n, part in enumerate([y, *after]))
    total.backward()
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    return Results(y.detach(), [part.detach() for part in after], x.grad, [s.grad for s in state], gradients)


def assert_same(got: Any, expected: Any, *, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(expected), rtol=tolerance, atol=tolerance)

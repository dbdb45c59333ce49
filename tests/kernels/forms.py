"""Two forms of one op, held against each other: outputs, final state, every gradient."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

BATCH = 5
TIMES = [1, 2, 63, 64, 65]
Form = Callable[..., tuple[Tensor, ...]]  # (inputs, states, lengths) -> (y, *states)


def ragged(time: int) -> Tensor:
    """A full row, an empty one, one moment, and two in between."""
    return torch.tensor([time, 0, 1, time // 2, max(time - 1, 0)])


def noise(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def everything(run: Form, inputs: Sequence[Tensor], states: Sequence[Tensor], lengths_B: Tensor | None) -> list[Tensor]:
    """Outputs, states, and the gradients of a fixed random sum of them by all that is not a whole number."""
    inputs, states = (
        [value.detach().clone().requires_grad_() if value.is_floating_point() else value for value in group]
        for group in (inputs, states)
    )
    results = [part for part in run(inputs, states, lengths_B) if part.is_floating_point()]
    total = sum((part * noise(*part.shape, seed=n)).sum() for n, part in enumerate(results))
    wanted = [value for value in (*inputs, *states) if value.requires_grad]
    gradients = torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
    return [part.detach() for part in results] + list(gradients)


def difference(
    first: Form, second: Form, inputs: Sequence[Tensor], states: Sequence[Tensor], lengths_B: Tensor | None = None
) -> float:
    """The largest, relative to the largest value of the same tensor (absolute where that is below 1)."""
    pairs = zip(
        everything(first, inputs, states, lengths_B), everything(second, inputs, states, lengths_B), strict=True
    )
    errors = [(a - b).abs().max().item() / max(1.0, b.abs().max().item()) for a, b in pairs if b.numel()]
    return max(error if error == error else float("inf") for error in errors)

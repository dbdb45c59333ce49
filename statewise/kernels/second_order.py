"""Whether gradients are wanted, and those that can be differentiated again, for ops whose fast backward cannot."""

from collections.abc import Sequence

import torch
from torch import Tensor


def is_wanted(inputs: Sequence[Tensor | None]) -> bool:
    """Whether a gradient may be asked for, of any of them."""
    return torch.is_grad_enabled() and any(value is not None and value.requires_grad for value in inputs)


def differentiable(output: Tensor, inputs: Sequence[Tensor], gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Autograd's own gradients of `output` by those inputs that want one, as part of the graph."""
    wanted = [value for value in inputs if value.requires_grad]
    found = iter(torch.autograd.grad(output, wanted, gradient, create_graph=True))
    return tuple(next(found) if value.requires_grad else None for value in inputs)


def through(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor | None], gradients: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """The same for several outputs, of which some may have no gradient, with the places of absent inputs kept."""
    used = [(part, gradient) for part, gradient in zip(outputs, gradients, strict=True) if gradient is not None]
    if not used:
        return (None,) * len(inputs)
    output = torch.cat([part.flatten() for part, _ in used])
    gradient = torch.cat([gradient.flatten().to(output.dtype) for _, gradient in used])
    found = iter(differentiable(output, [value for value in inputs if value is not None], gradient))
    return tuple(None if value is None else next(found) for value in inputs)

"""Gradients that can be differentiated again, for ops whose fast backward cannot."""

from collections.abc import Sequence

import torch
from torch import Tensor


def differentiable(output: Tensor, inputs: Sequence[Tensor], gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Autograd's own gradients of `output` by those inputs that want one, as part of the graph."""
    wanted = [value for value in inputs if value.requires_grad]
    found = iter(torch.autograd.grad(output, wanted, gradient, create_graph=True))
    return tuple(next(found) if value.requires_grad else None for value in inputs)


def through(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor | None], gradients: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """The same for several outputs, with the places of absent inputs kept."""
    output = torch.cat([part.flatten() for part in outputs])
    gradient = torch.cat([part.flatten().to(output.dtype) for part in gradients])
    found = iter(differentiable(output, [value for value in inputs if value is not None], gradient))
    return tuple(None if value is None else next(found) for value in inputs)

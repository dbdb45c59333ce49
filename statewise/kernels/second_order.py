"""Gradients that can be differentiated again, for ops whose fast backward cannot."""

from collections.abc import Sequence

import torch
from torch import Tensor


def differentiable(output: Tensor, inputs: Sequence[Tensor], gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Autograd's own gradients of `output` by those inputs that want one, as part of the graph."""
    wanted = [value for value in inputs if value.requires_grad]
    found = iter(torch.autograd.grad(output, wanted, gradient, create_graph=True))
    return tuple(next(found) if value.requires_grad else None for value in inputs)

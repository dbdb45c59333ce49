"""Whether gradients are wanted, and those that can be differentiated again, for ops whose fast backward cannot."""

from collections.abc import Sequence

import torch
from torch import Tensor


def is_wanted(inputs: Sequence[Tensor | None]) -> bool:
    """Whether a gradient may be asked for, of any of them."""
    return torch.is_grad_enabled() and any(value is not None and value.requires_grad for value in inputs)


def through(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor | None], gradients: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Autograd's own gradients by those inputs that want one, as part of the graph; None in the places of the others.

    `outputs` come from an op that can be differentiated twice. Some may have no gradient, or depend on no input that
    wants one.
    """
    pairs = zip(outputs, gradients, strict=True)
    used = [(part, gradient.to(part.dtype)) for part, gradient in pairs if gradient is not None and part.requires_grad]
    wanted = [value for value in inputs if value is not None and value.requires_grad]
    if not used or not wanted:
        return (None,) * len(inputs)
    parts, given = zip(*used, strict=True)
    found = iter(torch.autograd.grad(parts, wanted, given, create_graph=True, allow_unused=True))
    return tuple(next(found) if value is not None and value.requires_grad else None for value in inputs)

"""Whether gradients are wanted, and those that can be differentiated again, for ops whose fast backward cannot."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def is_wanted(inputs: Sequence[Tensor | None]) -> bool:
    """Whether a gradient may be asked for, of any of them."""
    return torch.is_grad_enabled() and any(value is not None and value.requires_grad for value in inputs)


def wants_equation(gradient: Tensor) -> bool:
    """Whether a backward that writes into memory of its own must not run.

    Either a gradient of this gradient is wanted, or many gradients are asked for at once.
    """
    return torch.is_grad_enabled() or is_many(gradient)


def is_many(gradient: Tensor) -> bool:
    """Whether many gradients are asked for at once, as one tensor of theirs."""
    of = torch._C._functorch
    return of.is_legacy_batchedtensor(gradient) or of.is_batchedtensor(gradient)


def through(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor | None],
    gradients: Sequence[Tensor | None],
    *,
    kept: bool = True,
) -> tuple[Tensor | None, ...]:
    """Autograd's own gradients by those inputs that want one; None in the places of the others.

    `outputs` come from an op that can be differentiated twice. Some may have no gradient, or depend on no input that
    wants one. `kept`: the gradients are part of the graph.
    """
    pairs = zip(outputs, gradients, strict=True)
    used = [(part, gradient.to(part.dtype)) for part, gradient in pairs if gradient is not None and part.requires_grad]
    wanted = [value for value in inputs if value is not None and value.requires_grad]
    if not used or not wanted:
        return (None,) * len(inputs)
    parts, given = zip(*used, strict=True)
    found = iter(torch.autograd.grad(parts, wanted, given, create_graph=kept, allow_unused=True))
    return tuple(next(found) if value is not None and value.requires_grad else None for value in inputs)


def again(
    equation: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor], gradients: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """In a backward that gives way: the gradients of the equation, as part of the graph only where that is wanted."""
    kept = torch.is_grad_enabled()
    with torch.enable_grad():
        outputs = equation()
    return through(outputs, inputs, gradients, kept=kept)

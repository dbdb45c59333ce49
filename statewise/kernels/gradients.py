"""What hand-written backwards share: whether gradients are wanted, second gradients, sums over all time steps.

N time steps of all rows.
"""

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
    outputs: Sequence[Tensor], inputs: Sequence[Tensor | None], gradients: Sequence[Tensor | None], *, kept: bool = True
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
    results = iter(torch.autograd.grad(parts, wanted, given, create_graph=kept, allow_unused=True))
    return tuple(next(results) if value is not None and value.requires_grad else None for value in inputs)


def again(
    equation: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor], gradients: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """In a backward that gives way: the gradients of the equation, as part of the graph only where that is wanted."""
    kept = torch.is_grad_enabled()
    with torch.enable_grad():
        outputs = equation()
    return through(outputs, inputs, gradients, kept=kept)


def product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """a b in the dtype of a parameter: where that is float32, the sums are not rounded on their way."""
    if dtype == torch.float32 and a.dtype != dtype:
        return torch.mm(a, b, out_dtype=torch.float32)
    result = torch.mm(a, b)
    return result if result.dtype is dtype else result.to(dtype)


def matrix_gradient(parts: Sequence[Tensor], x_NI: Tensor, dtype: torch.dtype) -> Tensor:
    """Of a matrix whose rows, in parts, got the gradients [N, R] when it read x."""
    products = [product(part_NR.mT, x_NI, dtype) for part_NR in parts]
    return products[0] if len(products) == 1 else torch.cat(products)


def bias_gradient(d_NR: Tensor, dtype: torch.dtype) -> Tensor:
    """In the dtype of the bias; numbers of 16 bits are summed in 32 before they are rounded to it."""
    return d_NR.sum(0, dtype=dtype)

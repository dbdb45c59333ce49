"""Sums over all moments of all rows, each a single product or a single sum, in float32 on the way.

N moments of all rows.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """a b in the dtype of a parameter: where that is float32, the sums are not rounded on their way."""
    if dtype == torch.float32 and a.dtype != dtype:
        return torch.mm(a, b, out_dtype=torch.float32)
    found = torch.mm(a, b)
    return found if found.dtype is dtype else found.to(dtype)


def matrix_gradient(parts: Sequence[Tensor], x_NI: Tensor, dtype: torch.dtype) -> Tensor:
    """Of a matrix whose rows, in parts, got the gradients [N, R] when it read x."""
    products = [product(part_NR.mT, x_NI, dtype) for part_NR in parts]
    return products[0] if len(products) == 1 else torch.cat(products)


def bias_gradient(d_NR: Tensor, dtype: torch.dtype) -> Tensor:
    """In the dtype of the bias; numbers of 16 bits are summed in 32 before they are rounded to it."""
    return d_NR.sum(0, dtype=dtype)

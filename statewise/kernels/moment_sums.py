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
    return (a @ b).to(dtype)


def matrix_gradient(parts: Sequence[Tensor], x_NI: Tensor, dtype: torch.dtype) -> Tensor:
    """Of a matrix whose rows, in parts, got the gradients [N, R] when it read x."""
    return _stacked([product(part_NR.mT, x_NI, dtype) for part_NR in parts])


def bias_gradient(parts: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    return _stacked([part_NR.sum(0, dtype=torch.float32) for part_NR in parts]).to(dtype)


def _stacked(values: list[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.cat(values)

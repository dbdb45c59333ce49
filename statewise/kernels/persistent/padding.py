"""Tensors in the dtype and at the width that a kernel computes in, and back. Where nothing is to do, no op runs.

D width, P padded width.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    """The question costs less than an op that finds nothing to do."""
    return value if value.dtype is dtype else value.to(dtype, memory_format=torch.contiguous_format)


def wide(value: Tensor, padded: int, *, gates: int = 1, columns: bool = False) -> Tensor:
    """Rows of each gate up to the padded width, in zeros: such units stay at zero and pass nothing on."""
    width = value.shape[0] // gates
    if padded == width:
        return value.contiguous()
    rest = value.shape[1:]
    value = value.view(gates, width, -1)
    value = F.pad(value, (0, padded - width if columns else 0, 0, padded - width))
    return value.reshape(gates * padded, *((padded,) if columns else rest))


def across(value: Tensor, padded: int) -> Tensor:
    """[..., D] to a contiguous [..., P]."""
    missing = padded - value.shape[-1]
    return F.pad(value, (0, missing)) if missing else value.contiguous()


def narrow(value: Tensor, width: int, *, gates: int) -> Tensor:
    """Gate rows back to the true width."""
    padded = value.shape[0] // gates
    if padded == width:
        return value
    return torch.unflatten(value, 0, (gates, padded))[:, :width].flatten(0, 1)


def first(value: Tensor, width: int) -> Tensor:
    """[..., P] to [..., D]."""
    return value if value.shape[-1] == width else value[..., :width]

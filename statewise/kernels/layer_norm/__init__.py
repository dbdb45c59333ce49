"""Normalisation of vectors (layer norm, RMS norm): the equation, PyTorch's op, one kernel for GPUs, and the choice.

N vectors, D width.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import transformed
from statewise.kernels.choice import Choice
from statewise.kernels.layer_norm import naive as naive
from statewise.kernels.with_triton import load, triton_or

WIDEST = 8192  # numbers that one program holds


def choice(like_D: Tensor) -> Choice:
    variant = f"it takes vectors up to {WIDEST} wide" if like_D.shape[-1] > WIDEST else None
    why = "one kernel writes what products read, and one reads gradients once for all that they need"
    return triton_or("fused", like_D, why, variant=variant)


def norm(
    x: Tensor, gain_D: Tensor, bias_D: Tensor | None, eps: float, *, centred: bool, for_products: bool = False
) -> Tensor:
    """Over the last axis. `for_products`: only products read it, so under autocast it may come in their precision."""
    if choice(gain_D).implementation == "fused" or x.dtype == torch.float64:
        x = x.to(gain_D.dtype)
        if centred:
            return F.layer_norm(x, gain_D.shape, gain_D, bias_D, eps)
        return F.rms_norm(x, gain_D.shape, gain_D, eps)
    dtype = _narrow(x) if for_products else None
    y_ND: Tensor = load("layer_norm").norm(
        x.reshape(-1, x.shape[-1]), gain_D, bias_D, eps, centred=centred, dtype=dtype or gain_D.dtype
    )
    return y_ND.view(x.shape)


def _narrow(x: Tensor) -> torch.dtype | None:
    """The precision of products, where it is not that of their inputs."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def sum_and_norm(
    x: Tensor, y: Tensor, gain_D: Tensor, bias_D: Tensor | None, eps: float, *, centred: bool
) -> tuple[Tensor, Tensor] | None:
    """`x + y`, and its norm for products, by one kernel. None where there is no such kernel."""
    if choice(gain_D).implementation == "fused" or torch.float64 in (x.dtype, y.dtype) or transformed():
        return None
    rows = (part.reshape(-1, part.shape[-1]) for part in (x, y))
    dtype = _narrow(x) or gain_D.dtype
    total_ND, y_ND = load("layer_norm").sum_and_norm(*rows, gain_D, bias_D, eps, centred=centred, dtype=dtype)
    return total_ND.view(x.shape), y_ND.view(x.shape)

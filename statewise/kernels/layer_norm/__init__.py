"""Normalisation of vectors (layer norm, RMS norm): the equation, PyTorch's op, one kernel for GPUs, and the choice.

N vectors, D width.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.choice import Choice, is_asked
from statewise.kernels.layer_norm import naive as naive
from statewise.kernels.with_triton import load, obstacle

WIDEST = 8192  # numbers that one program holds


def choice(like_D: Tensor) -> Choice:
    """There is one fast form: whoever asks for a form by name means the products around it, and gets PyTorch's op."""
    if is_asked():
        return Choice("fused", "a lens is open, or somebody asked for one kind of kernel")
    reason = obstacle(like_D)
    if reason is None and like_D.shape[-1] > WIDEST:
        reason = f"it takes vectors up to {WIDEST} wide"
    if reason is not None:
        return Choice("fused", f"not triton: {reason}")
    return Choice("triton", "one kernel writes what products read, and one reads gradients once for all that they need")


def norm(
    x: Tensor, gain_D: Tensor, bias_D: Tensor | None, eps: float, *, centred: bool, for_products: bool = False
) -> Tensor:
    """Over the last axis. `for_products`: only products read it, so under autocast it may come in their precision."""
    if choice(gain_D).implementation == "fused" or x.dtype == torch.float64:
        if centred:
            return F.layer_norm(x, gain_D.shape, gain_D, bias_D, eps)
        return F.rms_norm(x, gain_D.shape, gain_D, eps)
    kind = x.device.type
    narrow = torch.get_autocast_dtype(kind) if for_products and torch.is_autocast_enabled(kind) else None
    y_ND: Tensor = load("layer_norm").norm(
        x.reshape(-1, x.shape[-1]), gain_D, bias_D, eps, centred=centred, dtype=narrow or gain_D.dtype
    )
    return y_ND.view(x.shape)

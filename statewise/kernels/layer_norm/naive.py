"""Normalisation of vectors, written out. N vectors, D width."""

import torch
from torch import Tensor


def norm(x_ND: Tensor, gain_D: Tensor, bias_D: Tensor | None, eps: float, *, centred: bool) -> Tensor:
    """`g (x - μ) / √(σ² + ε) + b` (Ba et al. 2016); not centred, `g x / √(mean x² + ε)` (Zhang and Sennrich 2019)."""
    apart_ND = x_ND - x_ND.mean(-1, keepdim=True) if centred else x_ND
    y_ND = gain_D * apart_ND * torch.rsqrt(apart_ND.square().mean(-1, keepdim=True) + eps)
    return y_ND if bias_D is None else y_ND + bias_D

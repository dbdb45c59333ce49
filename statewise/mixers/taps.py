"""The short causal convolution that may stand before what a mixer reads: its weights, and what a state keeps for it.

B batch, T time, C channels, K taps, W = K - 1 inputs that it remembers.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.kernels import Wish
from statewise.kernels.short_convolution import short_convolution

Window = tuple[Tensor, ...]  # the last inputs [B, W, C]; empty without a convolution


def fill_taps(weight_CK: Tensor | None, *, generator: torch.Generator | None) -> None:
    """As PyTorch begins a convolution with one input channel to each output."""
    if weight_CK is not None:
        edge = 1 / math.sqrt(weight_CK.shape[1])
        nn.init.uniform_(weight_CK, -edge, edge, generator=generator)


def empty_window(weight_CK: Tensor | None, batch: int, *, like: Tensor) -> Window:
    """Before the first input there were zeros."""
    if weight_CK is None:
        return ()
    channels, taps = weight_CK.shape
    return (like.new_zeros(batch, taps - 1, channels),)


def convolved(
    a_BTC: Tensor,
    window: Window,
    weight_CK: Tensor | None,
    lengths_B: Tensor | None,
    *,
    silu: bool = False,
    wish: Wish,
) -> tuple[Tensor, Window]:
    """The inputs convolved along time, with `silu` its SiLU; without weights the inputs themselves."""
    if weight_CK is None:
        return F.silu(a_BTC) if silu else a_BTC, window
    (window_BWC,) = window
    a_BTC, window_BWC = short_convolution(a_BTC, window_BWC, weight_CK, lengths_B, silu=silu, wish=wish)
    return a_BTC, (window_BWC,)

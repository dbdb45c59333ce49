"""What mixers share whose recurrence is linear, so that a kernel can compute all time steps in parallel.

`forward` and `step` come from one method. Before what it reads may stand a short causal convolution: its weights, and
the inputs that a state keeps for it.

B batch, T time, I input width, C channels, K taps, W = K - 1 inputs that the convolution remembers.
"""

import math
from abc import abstractmethod
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Stacked, State, check_input, one_step
from statewise.kernels import Wish
from statewise.kernels.short_convolution import short_convolution
from statewise.mixers.recurrent import KernelMixer

S = TypeVar("S", bound=State)
Window = tuple[Tensor, ...]  # the last inputs [B, W, C]; empty without a convolution


class ParallelMixer(KernelMixer[S], Stacked):
    """`forward` is `_read` by the fastest implementation, `step` is `_read` of one time step by the equation."""

    @abstractmethod
    def _read(self, x_BTI: Tensor, state: S, lengths_B: Tensor | None, *, wish: Wish) -> tuple[Tensor, S]: ...

    def forward(self, x: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        check_input(x, lengths_B, width=self.input_width)
        return self._read(x, self.init_state(x.shape[0]) if state is None else state, lengths_B, wish=self.kernel)

    def step(self, x: Tensor, state: S) -> tuple[Tensor, S]:
        return one_step(lambda x, state: self._read(x, state, None, wish="naive"), x, state)


def fill_taps(weight_CK: Tensor | None, *, generator: torch.Generator | None) -> None:
    """As PyTorch initialises a convolution with one input channel for each output."""
    if weight_CK is not None:
        edge = 1 / math.sqrt(weight_CK.shape[1])
        nn.init.uniform_(weight_CK, -edge, edge, generator=generator)


def empty_window(weight_CK: Tensor | None, batch: int, *, like: Tensor) -> Window:
    """Zeros; empty without a convolution."""
    if weight_CK is None:
        return ()
    channels, taps = weight_CK.shape
    return (like.new_zeros(batch, taps - 1, channels),)


def convolved(
    a_BTC: Tensor,
    window: Window,
    weight_CK: Tensor | None,
    lengths_B: Tensor | None,
    bias_C: Tensor | None = None,
    *,
    silu: bool = False,
    wish: Wish,
) -> tuple[Tensor, Window]:
    """The inputs convolved along time, plus a bias, with `silu` its SiLU; without weights the inputs themselves."""
    if weight_CK is None:
        return F.silu(a_BTC) if silu else a_BTC, window
    (window_BWC,) = window
    fused = silu and bias_C is None
    a_BTC, window_BWC = short_convolution(a_BTC, window_BWC, weight_CK, lengths_B, silu=fused, wish=wish)
    if bias_C is not None:
        a_BTC = a_BTC + bias_C.to(a_BTC)
        a_BTC = F.silu(a_BTC) if silu else a_BTC
    return a_BTC, (window_BWC,)

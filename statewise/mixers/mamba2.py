"""Mamba-2 (Dao and Gu 2024): a selective state space, whose decay, input and output depend on what is read.

B batch, T time, I input width, D width, E inner width, H heads, P width of a head, N width of the state.
"""

from typing import Literal, NamedTuple, Unpack, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import state_type
from statewise.kernels import Choice, Wish, past_end, wide
from statewise.kernels.few_rows import linear
from statewise.kernels.linear_attention import choice, linear_attention
from statewise.layers import check_heads, fill_decay
from statewise.mixers.parallel import ParallelMixer, Window, convolved, empty_window, fill_taps
from statewise.mixers.recurrent import MixerOptions


@state_type
class Mamba2State(NamedTuple):
    s_BHNP: Tensor
    window: Window  # the convolution's last inputs [B, W, E + 2N]; empty without one


@final
class Mamba2(ParallelMixer[Mamba2State]):
    """`S_t = e^{-Δ e^r} S_{t-1} + Δ B x̃ᵀ`, `ỹ_t = S_tᵀ C + d · x̃`, `y_t = W_o norm(ỹ · silu(z))`.

    x̃, B, C are what a causal convolution of `conv` taps and a SiLU make of `W x` (0 leaves the convolution out);
    `Δ = softplus(W_Δ x + b)`, one number a head; B and C (width `state`) are shared by all heads. The inner width is
    `expand` times the width. `gate=False` leaves out z. d is one number an inner unit, or a head (`skip`).
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int = 2,
        state: int = 16,
        expand: int = 2,
        conv: int = 4,
        conv_bias: bool = False,
        gate: bool = True,
        skip: Literal["unit", "head"] = "unit",
        **options: Unpack[MixerOptions],
    ) -> None:
        fill = self.prepare(width, **options)
        inner = expand * width
        check_heads(heads, width=inner, called="inner width")
        self.sizes = [inner, state, state]  # of x̃, B, C
        self.heads = heads
        channels = sum(self.sizes)
        self.w_CI = nn.Parameter(torch.empty(channels, self.input_width))
        self.w_step_HI = nn.Parameter(torch.empty(heads, self.input_width))
        self.b_step_H = nn.Parameter(torch.empty(heads))
        self.log_rate_H = nn.Parameter(torch.empty(heads))
        self.skip_E = nn.Parameter(torch.ones(inner)) if skip == "unit" else None
        self.skip_H = nn.Parameter(torch.ones(heads)) if skip == "head" else None
        self.w_conv_CK = nn.Parameter(torch.empty(channels, conv)) if conv else None
        self.b_conv_C = nn.Parameter(torch.zeros(channels)) if conv and conv_bias else None
        self.w_gate_EI = nn.Parameter(torch.empty(inner, self.input_width)) if gate else None
        self.gain_E = nn.Parameter(torch.ones(inner))
        self.w_out_DE = nn.Parameter(torch.empty(width, inner))
        for weight in (self.w_CI, self.w_step_HI, self.w_gate_EI, self.w_out_DE):
            if weight is not None:
                fill.input(weight)
        fill_taps(self.w_conv_CK, generator=fill.generator)
        fill_decay(self.log_rate_H, self.b_step_H, generator=fill.generator)

    def stacked(self) -> dict[str, list[int]]:
        return {"w_CI": self.sizes, "w_conv_CK": []}

    def init_state(self, batch: int) -> Mamba2State:
        inner, state, _ = self.sizes
        window = empty_window(self.w_conv_CK, batch, like=self.like)
        return Mamba2State(self.wide_zeros(batch, self.heads, state, inner // self.heads), window)

    def choice(self) -> Choice:
        inner, state, _ = self.sizes
        return choice(self.like.new_empty(state, inner // self.heads), wish=self.kernel)

    def _skip_E(self) -> Tensor:
        if self.skip_H is not None:
            return self.skip_H.repeat_interleave(self.sizes[0] // self.heads)
        assert self.skip_E is not None
        return self.skip_E

    def _read(
        self, x_BTI: Tensor, state: Mamba2State, lengths_B: Tensor | None, *, wish: Wish
    ) -> tuple[Tensor, Mamba2State]:
        # Between the projections in float32 at least: a head's few numbers are sums over all of its units.
        a_BTC, step_BTH = wide(linear(x_BTI, self.w_CI), F.linear(x_BTI, self.w_step_HI))
        log_rate_H, b_step_H, skip_E, gain_E = wide(self.log_rate_H, self.b_step_H, self._skip_E(), self.gain_E)
        a_BTC, window = convolved(a_BTC, state.window, self.w_conv_CK, lengths_B, self.b_conv_C, silu=True, wish=wish)
        inner_BTE, b_BTN, c_BTN = torch.split_with_sizes(a_BTC, self.sizes, dim=-1)
        inner_BTHP = torch.unflatten(inner_BTE, -1, (self.heads, -1))
        delta_BTH = F.softplus(step_BTH + b_step_H)
        g_BTH = -log_rate_H.exp() * delta_BTH
        # The recurrence is linear attention's with a decay: C asks, B is the key, Δ x̃ the value.
        b_BTHN, c_BTHN = (part[:, :, None].expand(-1, -1, self.heads, -1) for part in (b_BTN, c_BTN))
        value_BTHP = delta_BTH[..., None] * inner_BTHP
        y_BTHP, s_BHNP = linear_attention(c_BTHN, b_BTHN, value_BTHP, g_BTH, state.s_BHNP, lengths_B, wish=wish)
        y_BTE = torch.addcmul(y_BTHP.flatten(-2), skip_E, inner_BTE)
        if self.w_gate_EI is not None:
            y_BTE = y_BTE * F.silu(linear(x_BTI, self.w_gate_EI))
        y_BTE = F.rms_norm(y_BTE, gain_E.shape, gain_E, eps=1e-5)
        y_BTD = linear(y_BTE.to(x_BTI), self.w_out_DE)
        return y_BTD if lengths_B is None else past_end(y_BTD, lengths_B), Mamba2State(s_BHNP, window)

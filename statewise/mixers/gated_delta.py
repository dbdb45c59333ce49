"""Gated DeltaNet (Yang et al. 2024): a matrix per head in which a key's value can be replaced, and all can fade.

B batch, T time, I input width, D width, H heads, G heads of q and of k, K width of a head,
W inputs the convolution remembers.
"""

from typing import NamedTuple, Unpack, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import state_type
from statewise.kernels import Choice, Wish, no_autocast
from statewise.kernels.few_rows import linear
from statewise.kernels.gated_delta import choice, gated_delta
from statewise.kernels.layer_norm import norm
from statewise.layers import check_heads, fill_decay
from statewise.mixers.parallel import ParallelMixer, Window, convolved, empty_window, fill_taps
from statewise.mixers.recurrent import MixerOptions


@state_type
class GatedDeltaState(NamedTuple):
    s_BHKK: Tensor
    window: Window  # the convolution's last inputs [B, W, 3D]; empty without one


@final
class GatedDelta(ParallelMixer[GatedDeltaState]):
    """`S_t = α (I - β k kᵀ) S_{t-1} + β k vᵀ`, `y_t = W_o (norm(S_tᵀ q) · silu(W_g x))`, q and k of length 1.

    `decay=False` leaves α at 1: the delta rule alone (Schlag et al. 2021, Yang et al. 2024). `conv` taps of a
    causal convolution stand before q, k and v; 0 leaves it out. `gate=False` leaves out `silu(W_g x)`.
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int = 2,
        decay: bool = True,
        conv: int = 4,
        gate: bool = True,
        **options: Unpack[MixerOptions],
    ) -> None:
        fill = self.prepare(width, **options)
        check_heads(heads, width=width)
        self.heads = heads
        self.w_GI = nn.Parameter(torch.empty(3 * width, self.input_width))  # rows for q, k, v
        self.w_beta_HI = nn.Parameter(torch.empty(heads, self.input_width))
        self.w_decay_HI = nn.Parameter(torch.empty(heads, self.input_width)) if decay else None
        self.log_rate_H = nn.Parameter(torch.empty(heads)) if decay else None
        self.b_decay_H = nn.Parameter(torch.empty(heads)) if decay else None
        self.w_conv_CK = nn.Parameter(torch.empty(3 * width, conv)) if conv else None
        self.w_gate_DI = nn.Parameter(torch.empty(width, self.input_width)) if gate else None
        self.gain_K = nn.Parameter(torch.ones(width // heads))
        self.w_out_DD = nn.Parameter(torch.empty(width, width))
        fill.input(self.w_GI, gates=3)
        for weight in (self.w_beta_HI, self.w_decay_HI, self.w_gate_DI, self.w_out_DD):
            if weight is not None:
                fill.input(weight)
        fill_taps(self.w_conv_CK, generator=fill.generator)
        if self.log_rate_H is not None and self.b_decay_H is not None:
            fill_decay(self.log_rate_H, self.b_decay_H, generator=fill.generator)

    def stacked(self) -> dict[str, list[int]]:
        return {"w_GI": [self.output_width] * 3, "w_conv_CK": []}

    def init_state(self, batch: int) -> GatedDeltaState:
        head = self.output_width // self.heads
        window = empty_window(self.w_conv_CK, batch, like=self.like)
        return GatedDeltaState(self.wide_zeros(batch, self.heads, head, head), window)

    def choice(self) -> Choice:
        head = self.output_width // self.heads
        return choice(self.like.new_empty(head, head), wish=self.kernel)

    def _read(
        self, x_BTI: Tensor, state: GatedDeltaState, lengths_B: Tensor | None, *, wish: Wish
    ) -> tuple[Tensor, GatedDeltaState]:
        a_BTC = linear(x_BTI, self.w_GI)
        a_BTC, window = convolved(a_BTC, state.window, self.w_conv_CK, lengths_B, silu=True, wish=wish)
        qk_BTGK, v_BTHK = (
            torch.unflatten(part, -1, (-1, self.output_width // self.heads))
            for part in torch.split_with_sizes(a_BTC, [2 * self.output_width, self.output_width], dim=-1)
        )
        q_BTHK, k_BTHK = unit(qk_BTGK).chunk(2, dim=2)
        beta_BTH = torch.sigmoid(F.linear(x_BTI, self.w_beta_HI))
        g_BTH = torch.zeros_like(beta_BTH)
        if self.w_decay_HI is not None and self.log_rate_H is not None:
            g_BTH = -self.log_rate_H.exp() * F.softplus(F.linear(x_BTI, self.w_decay_HI, self.b_decay_H))
        y_BTHK, s_BHKK = gated_delta(q_BTHK, k_BTHK, v_BTHK, beta_BTH, g_BTH, state.s_BHKK, lengths_B, wish=wish)
        y_BTD = norm(y_BTHK, self.gain_K, None, 1e-5, centred=False, for_products=True).flatten(-2)
        if self.w_gate_DI is not None:
            y_BTD = y_BTD * F.silu(linear(x_BTI, self.w_gate_DI))
        return linear(y_BTD, self.w_out_DD), GatedDeltaState(s_BHKK, window)


def unit(x_BTHK: Tensor) -> Tensor:
    """Of length 1; a small number keeps the gradient at 0 finite."""
    head = x_BTHK.shape[-1]
    # A norm by the root of the mean is √K times that: one kernel, where its parts would be five.
    shrunk_K = x_BTHK.new_full((head,), head**-0.5)
    with no_autocast(x_BTHK):
        return norm(x_BTHK, shrunk_K, None, 1e-6 / head, centred=False)

"""Linear attention (Katharopoulos et al. 2020): attention whose list of keys and values is summed into a matrix.

B batch, T time, I input width, D width, H heads, K width of a head, W inputs the convolution remembers.
"""

from typing import Literal, NamedTuple, Unpack, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import state_type
from statewise.kernels import Choice, Wish
from statewise.kernels.few_rows import linear
from statewise.kernels.linear_attention import choice, linear_attention
from statewise.layers import check_heads
from statewise.mixers.parallel import ParallelMixer, Window, convolved, empty_window, fill_taps
from statewise.mixers.recurrent import MixerOptions

Feature = Literal["elu", "identity"]


@state_type
class LinearAttentionState(NamedTuple):
    kv_BHKK: Tensor  # the sum of φ(k) vᵀ
    k_BHK: Tensor  # the sum of φ(k), which normalises
    window: Window  # the convolution's last inputs [B, W, 3D]; empty without one


@final
class LinearAttention(ParallelMixer[LinearAttentionState]):
    """`S_t = S_{t-1} + φ(k) vᵀ`, `n_t = n_{t-1} + φ(k)`, `y_t = W_o (S_tᵀ φ(q) / n_t · φ(q))`.

    `feature` is φ: `elu` is elu + 1, which keeps the denominator positive; `identity` does without one, and
    scales q by 1/√K instead. `conv` taps of a causal convolution stand before q, k and v: a sum knows no order, so
    without it a layer cannot tell the last token from any other. 0 leaves it out.
    """

    def __init__(
        self, width: int, *, heads: int = 2, feature: Feature = "elu", conv: int = 0, **options: Unpack[MixerOptions]
    ) -> None:
        fill = self.prepare(width, **options)
        check_heads(heads, width=width)
        self.heads = heads
        self.feature: Feature = feature
        self.w_GI = nn.Parameter(torch.empty(3 * width, self.input_width))  # rows for q, k, v
        self.w_conv_CK = nn.Parameter(torch.empty(3 * width, conv)) if conv else None
        self.w_out_DD = nn.Parameter(torch.empty(width, width))
        fill.input(self.w_GI, gates=3)
        fill.input(self.w_out_DD)
        fill_taps(self.w_conv_CK, generator=fill.generator)

    def stacked(self) -> dict[str, list[int]]:
        return {"w_GI": [self.output_width] * 3, "w_conv_CK": []}

    def init_state(self, batch: int) -> LinearAttentionState:
        head = self.output_width // self.heads
        kv_BHKK = self.wide_zeros(batch, self.heads, head, head)
        window = empty_window(self.w_conv_CK, batch, like=self.like)
        return LinearAttentionState(kv_BHKK, self.wide_zeros(batch, self.heads, head), window)

    def choice(self) -> Choice:
        head = self.output_width // self.heads
        return choice(self.like.new_empty(head, head + 1), wish=self.kernel)

    def _read(
        self, x_BTI: Tensor, state: LinearAttentionState, lengths_B: Tensor | None, *, wish: Wish
    ) -> tuple[Tensor, LinearAttentionState]:
        a_BTC = linear(x_BTI, self.w_GI)
        a_BTC, window = convolved(a_BTC, state.window, self.w_conv_CK, lengths_B, wish=wish)
        qk_BTC, v_BTD = torch.split_with_sizes(a_BTC, [2 * self.output_width, self.output_width], dim=-1)
        if self.feature == "elu":
            qk_BTC = F.elu(qk_BTC) + 1
        q_BTHK, k_BTHK, v_BTHK = (
            torch.unflatten(part, -1, (self.heads, -1)) for part in (*qk_BTC.chunk(2, dim=-1), v_BTD)
        )
        if self.feature == "identity":
            q_BTHK = q_BTHK * q_BTHK.shape[-1] ** -0.5
        # A value of 1 beside the others sums the keys themselves, so one op keeps both parts of the state.
        widened_BTHV = F.pad(v_BTHK, (0, 1), value=1.0)
        s_BHKV = torch.cat([state.kv_BHKK, state.k_BHK[..., None]], dim=-1)
        never_BTH = q_BTHK.new_zeros(q_BTHK.shape[:-1])
        y_BTHV, s_BHKV = linear_attention(q_BTHK, k_BTHK, widened_BTHV, never_BTH, s_BHKV, lengths_B, wish=wish)
        y_BTHK = y_BTHV[..., :-1]
        if self.feature == "elu":
            y_BTHK = y_BTHK / (y_BTHV[..., -1:] + 1e-6)  # 0 past a row's end
        y_BTD = linear(y_BTHK.flatten(-2).to(self.like), self.w_out_DD)
        return y_BTD, LinearAttentionState(s_BHKV[..., :-1], s_BHKV[..., -1], window)

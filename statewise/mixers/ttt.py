"""Test-time training (Sun et al. 2024): the state is a small model's weights, trained by each token as it is read.

B batch, T time, I input width, D width, H heads, K width of a head, M hidden width of the inner model,
W inputs the convolution remembers.
"""

from typing import Literal, NamedTuple, Unpack, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import state_type
from statewise.kernels import Choice, Wish
from statewise.kernels.few_rows import linear
from statewise.kernels.ttt import Carried, InnerNorm, Weights, choice, ttt
from statewise.layers import check_heads
from statewise.mixers.parallel import ParallelMixer, Window, convolved, empty_window, fill_taps
from statewise.mixers.recurrent import MixerOptions

Inner = Literal["linear", "mlp"]


@state_type
class TTTState(NamedTuple):
    change: tuple[
        Tensor, ...
    ]  # of the inner weights from their learnt start: [B, H, K, K], or [B, H, K, M], [B, H, M, K]
    pending: tuple[Tensor, ...]  # the steps of this mini-batch so far, not yet part of `change`
    left_B: Tensor  # tokens until they are
    window: Window  # the convolution's last inputs [B, W, 3D]; empty without one


@final
class TTT(ParallelMixer[TTTState]):
    """`W_t = W_{t-1} - η_t ∇ℓ(W; k_t, v_t)`, `y_t = W_o f(q_t; W_t)`, with `ℓ = ½ ‖f(k; W) - v‖²`.

    `inner` is f: linear, or an MLP of `ratio` times a head's width with a GELU; with `inner_norm` it is
    `f(x) = x + norm(…)`, as published. Gradients are taken at the weights that a `mini_batch` began with; 1 is
    online. `η = rate / K · σ(W_η x + b_η)`, one number a token and head. `conv` taps of a causal convolution
    stand before q, k and v; 0 leaves it out.
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int = 2,
        inner: Inner = "linear",
        ratio: int = 4,
        inner_norm: bool = True,
        mini_batch: int = 16,
        rate: float = 1.0,
        conv: int = 0,
        **options: Unpack[MixerOptions],
    ) -> None:
        fill = self.prepare(width, **options)
        check_heads(heads, width=width)
        self.heads = heads
        self.mini_batch = mini_batch
        head = width // heads
        self.scale = rate / head
        shapes = [(head, head)] if inner == "linear" else [(head, ratio * head), (ratio * head, head)]
        self.w_GI = nn.Parameter(torch.empty(3 * width, self.input_width))  # rows for q, k, v
        self.w_rate_HI = nn.Parameter(torch.empty(heads, self.input_width))
        self.b_rate_H = nn.Parameter(torch.zeros(heads))
        self.start = nn.ParameterList(nn.Parameter(torch.empty(heads, *shape)) for shape in shapes)
        self.gain_HK = nn.Parameter(torch.ones(heads, head)) if inner_norm else None
        self.bias_HK = nn.Parameter(torch.zeros(heads, head)) if inner_norm else None
        self.w_conv_CK = nn.Parameter(torch.empty(3 * width, conv)) if conv else None
        self.w_out_DD = nn.Parameter(torch.empty(width, width))
        fill.input(self.w_GI, gates=3)
        fill.input(self.w_rate_HI)
        fill.input(self.w_out_DD)
        fill_taps(self.w_conv_CK, generator=fill.generator)
        for weight in self.start:
            nn.init.normal_(weight, std=0.02, generator=fill.generator)

    def stacked(self) -> dict[str, list[int]]:
        return {"w_GI": [self.output_width] * 3, "w_conv_CK": [], "gain_HK": [], "bias_HK": []}

    def init_state(self, batch: int) -> TTTState:
        nothing = tuple(self.wide_zeros(batch, *weight.shape) for weight in self.start)
        left_B = torch.full((batch,), self.mini_batch, device=self.like.device)
        window = empty_window(self.w_conv_CK, batch, like=self.like)
        return TTTState(nothing, tuple(part.clone() for part in nothing), left_B, window)

    def choice(self) -> Choice:
        return choice(tuple(self.start), mini_batch=self.mini_batch, wish=self.kernel)

    def inner(self) -> tuple[Weights, InnerNorm | None]:
        """The inner model as it is before anything was read."""
        norm = None
        if self.gain_HK is not None and self.bias_HK is not None:
            norm = InnerNorm(self.gain_HK, self.bias_HK)
        return tuple(self.start), norm

    def _read(self, x_BTI: Tensor, state: TTTState, lengths_B: Tensor | None, *, wish: Wish) -> tuple[Tensor, TTTState]:
        a_BTC = linear(x_BTI, self.w_GI)
        a_BTC, window = convolved(a_BTC, state.window, self.w_conv_CK, lengths_B, wish=wish)
        q_BTHK, k_BTHK, v_BTHK = (torch.unflatten(part, -1, (self.heads, -1)) for part in a_BTC.chunk(3, dim=-1))
        rate_BTH = self.scale * torch.sigmoid(F.linear(x_BTI, self.w_rate_HI, self.b_rate_H))
        start, norm = self.inner()
        y_BTHK, after = ttt(
            *(q_BTHK, k_BTHK, v_BTHK, rate_BTH, Carried(*state[:3]), start, norm),
            mini_batch=self.mini_batch,
            lengths_B=lengths_B,
            wish=wish,
        )
        return linear(y_BTHK.flatten(-2).to(self.like), self.w_out_DD), TTTState(*after, window)

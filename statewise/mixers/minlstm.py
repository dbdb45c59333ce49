"""The minimal LSTM (Feng et al. 2024): two gates that do not look at the state, and no cell apart from it."""

from typing import NamedTuple, Unpack, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import state_type
from statewise.kernels import Choice, Wish
from statewise.kernels.few_rows import linear
from statewise.kernels.scan import choice, gated_scan, scan
from statewise.mixers.mingru import Candidate, activated_candidate
from statewise.mixers.parallel import ParallelMixer
from statewise.mixers.recurrent import MixerOptions


@state_type
class MinLSTMState(NamedTuple):
    h_BD: Tensor


@final
class MinLSTM(ParallelMixer[MinLSTMState]):
    """`f = σ(W_f x + b_f)`, `i = σ(W_i x + b_i)`, `h_t = f/(f+i) · h_{t-1} + i/(f+i) · g(W_h x + b_h)`, `y_t = h_t`.

    `share`: divide both gates by their sum, as the paper does; without it they are independent, as in an LSTM.
    `candidate` is g (see `activated_candidate`); `forget_bias` is b_f at the start.
    """

    def __init__(
        self,
        width: int,
        *,
        share: bool = True,
        candidate: Candidate = "linear",
        forget_bias: float = 1.0,
        **options: Unpack[MixerOptions],
    ) -> None:
        fill = self.prepare(width, **options)
        self.share = share
        self.candidate: Candidate = candidate
        self.w_GI = nn.Parameter(torch.empty(3 * width, self.input_width))  # rows for f, i, the candidate
        self.b_G = nn.Parameter(torch.zeros(3 * width))
        fill.input(self.w_GI, gates=3)
        with torch.no_grad():
            self.b_G[:width] = forget_bias

    def stacked(self) -> dict[str, list[int]]:
        return {"w_GI": [self.output_width] * 3}

    def init_state(self, batch: int) -> MinLSTMState:
        return MinLSTMState(self.wide_zeros(batch, self.output_width))

    def choice(self) -> Choice:
        return choice(self.like, wish=self.kernel)

    def _read(
        self, x_BTI: Tensor, state: MinLSTMState, lengths_B: Tensor | None, *, wish: Wish
    ) -> tuple[Tensor, MinLSTMState]:
        f_BTD, i_BTD, g_BTD = linear(x_BTI, self.w_GI, self.b_G).chunk(3, dim=-1)
        x_BTD = activated_candidate(g_BTD, self.candidate)
        if self.share:
            # σ(log i - log f) is i/(f+i), and stays finite where both gates are nearly shut.
            odds_BTD = F.logsigmoid(i_BTD) - F.logsigmoid(f_BTD)
            y_BTD, h_BD = gated_scan(odds_BTD, x_BTD, state.h_BD, lengths_B, wish=wish)
        else:
            enter_BTD = torch.sigmoid(i_BTD) * x_BTD
            y_BTD, h_BD = scan(torch.sigmoid(f_BTD), enter_BTD, state.h_BD, lengths_B, wish=wish)
        return y_BTD.to(self.like), MinLSTMState(h_BD)

"""The minimal GRU (Feng et al. 2024): a GRU whose gate does not look at its state, so time can be parallel."""

from typing import Literal, NamedTuple, Unpack, assert_never, final

import torch
from torch import Tensor, nn

from statewise.core import state_type
from statewise.kernels import Choice, Wish
from statewise.kernels.few_rows import linear
from statewise.kernels.scan import choice, gated_scan
from statewise.mixers.parallel import ParallelMixer
from statewise.mixers.recurrent import MixerOptions

Candidate = Literal["linear", "positive", "tanh"]


def activated_candidate(a: Tensor, kind: Candidate) -> Tensor:
    """What a minimal unit writes, from `a = W x` alone.

    `linear`: a. `positive`: `a + 1/2` above 0 and σ(a) below, Feng et al.'s choice for logarithms. `tanh`.
    """
    match kind:
        case "linear":
            return a
        case "positive":
            return torch.where(a >= 0, a + 0.5, torch.sigmoid(a))
        case "tanh":
            return torch.tanh(a)
        case _:
            assert_never(kind)


@state_type
class MinGRUState(NamedTuple):
    h_BD: Tensor


@final
class MinGRU(ParallelMixer[MinGRUState]):
    """`z = σ(W_z x + b_z)`, `h_t = (1 - z) · h_{t-1} + z · g(W_h x + b_h)`, `y_t = h_t`.

    `candidate` is g: the identity, or as in `activated_candidate`. `keep_bias`: -b_z at the start.
    """

    def __init__(
        self, width: int, *, candidate: Candidate = "linear", keep_bias: float = 1.0, **options: Unpack[MixerOptions]
    ) -> None:
        fill = self.prepare(width, **options)
        self.candidate: Candidate = candidate
        self.w_GI = nn.Parameter(torch.empty(2 * width, self.input_width))  # rows for z, then for the candidate
        self.b_G = nn.Parameter(torch.zeros(2 * width))
        fill.input(self.w_GI, gates=2)
        with torch.no_grad():
            self.b_G[:width] = -keep_bias

    def stacked(self) -> dict[str, list[int]]:
        return {"w_GI": [self.output_width] * 2}

    def init_state(self, batch: int) -> MinGRUState:
        return MinGRUState(self.wide_zeros(batch, self.output_width))

    def choice(self) -> Choice:
        return choice(self.like, wish=self.kernel)

    def _read(
        self, x_BTI: Tensor, state: MinGRUState, lengths_B: Tensor | None, *, wish: Wish
    ) -> tuple[Tensor, MinGRUState]:
        z_BTD, g_BTD = linear(x_BTI, self.w_GI, self.b_G).chunk(2, dim=-1)
        y_BTD, h_BD = gated_scan(z_BTD, activated_candidate(g_BTD, self.candidate), state.h_BD, lengths_B, wish=wish)
        return y_BTD.to(self.like), MinGRUState(h_BD)

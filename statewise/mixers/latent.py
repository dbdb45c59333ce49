"""The latent autoregressive model: the state is a summary h of the past, and how it is renewed is free.

B batch, T time, I input width, D width.
"""

from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from statewise.core import Mixer, check_input, observe, state_type, unroll
from statewise.layers import Filler, Scheme, TransitionName, make_transition


@state_type
class LatentState(NamedTuple):
    h_BD: Tensor


@final
class Latent(Mixer[LatentState]):
    """`h_t = g(h_{t-1}, x_{t-1})`, from which a head predicts x_t: the output after reading x is `g(h, x)`.

    `transition` names a g, or is one: any module that takes `(h_BD, x_BI)` to a new `h_BD`, row by row.
    With "elman" this is the Elman network; the Kalman filter's prediction (1960) is the case of a linear g.
    """

    def __init__(
        self,
        width: int,
        *,
        input_width: int | None = None,
        transition: TransitionName | nn.Module = "mlp",
        hidden: int | None = None,
        init: Scheme = "orthogonal",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.input_width = input_width or width
        self.output_width = width
        self.g = (
            transition
            if isinstance(transition, nn.Module)
            else make_transition(transition, width, self.input_width, hidden=hidden, fill=Filler(init, generator))
        )

    def init_state(self, batch: int) -> LatentState:
        return LatentState(self.like.new_zeros(batch, self.output_width))

    def forward(
        self, x_BTI: Tensor, state: LatentState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, LatentState]:
        check_input(x_BTI, lengths_B, width=self.input_width)
        return unroll(self.step, x_BTI, state or self.init_state(x_BTI.shape[0]), lengths_B)

    def step(self, x_BI: Tensor, state: LatentState) -> tuple[Tensor, LatentState]:
        h_BD = observe("latent.h", self.g(state.h_BD, x_BI))
        return h_BD, LatentState(h_BD)

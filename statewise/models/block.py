"""One layer: norm, mixer, dropout, and perhaps the way around them."""

from typing import TypeVar, final

from torch import Tensor, nn

from statewise.core import Machine, Mixer, State
from statewise.layers import Dropout

S = TypeVar("S", bound=State)


@final
class Block(Machine[S]):
    """`y = dropout(mixer(norm(x)))`, plus `x` when `residual`. Its state is the mixer's."""

    def __init__(self, mixer: Mixer[S], *, norm: nn.Module, dropout: Dropout, residual: bool) -> None:
        super().__init__()
        self.norm = norm
        self.mixer = mixer
        self.dropout = dropout
        self.residual = residual

    def init_state(self, batch: int) -> S:
        return self.mixer.init_state(batch)

    def forward(self, x_BTD: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        y_BTD, after = self.mixer(self.norm(x_BTD), state, lengths_B)
        y_BTD = self.dropout(y_BTD)
        return (x_BTD + y_BTD if self.residual else y_BTD), after

    def step(self, x_BD: Tensor, state: S) -> tuple[Tensor, S]:
        y_BD, after = self.mixer.step(self.norm(x_BD), state)
        y_BD = self.dropout(y_BD[:, None])[:, 0]
        return (x_BD + y_BD if self.residual else y_BD), after

"""A machine that ends by a symbol, for whoever searches over tokens."""

from typing import final

from torch import Tensor

from statewise.core import State
from statewise.models.termination import EndSymbol
from statewise.models.token_machine import TokenMachine


@final
class EndAsToken(TokenMachine[State]):
    """A machine that ends by a symbol, as what a search over tokens expects: the edge is one more token."""

    def __init__(self, model: EndSymbol) -> None:
        super().__init__()
        self.model = model

    @property
    def vocab(self) -> int:
        return self.model.vocab + 1

    def init_state(self, batch: int) -> State:
        return self.model.init_state(batch)

    def forward(
        self, tokens_BT: Tensor, state: "State | None" = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, State]:
        return self.model(tokens_BT, state, lengths_B)

    def step(self, token_B: Tensor, state: State) -> tuple[Tensor, State]:
        return self.model.step(token_B, state)

"""A machine that knows when to stop, for whoever searches over tokens."""

from typing import TypeVar, final

import torch
from torch import Tensor

from statewise.core import State, unroll
from statewise.models.termination import Terminating
from statewise.models.token_machine import TokenMachine

S = TypeVar("S", bound=State)


@final
class EndAsToken(TokenMachine[S]):
    """However it ends, as what a search over tokens expects: the edge is one more token, and to choose it is to end.

    Its logits are log probabilities. Where the state counts the steps to go, the end is certain when none is left
    and impossible before.
    """

    def __init__(self, model: Terminating[S]) -> None:
        super().__init__()
        self.model = model

    @property
    def vocab(self) -> int:
        return self.model.vocab + 1

    def init_state(self, batch: int) -> S:
        return self.model.init_state(batch)

    def forward(self, tokens_BT: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        return unroll(self.step, tokens_BT, self.init_state(tokens_BT.shape[0]) if state is None else state, lengths_B)

    def step(self, token_B: Tensor, state: S) -> tuple[Tensor, S]:
        outputs_BV, after = self.model.step(token_B, state)
        log_BV, over_B = self.model.log_chances(outputs_BV), self.model.over(after)
        if over_B is None:
            return log_BV, after
        end_BV = torch.full_like(log_BV, -torch.inf)
        end_BV[:, self.model.edge] = 0.0
        return torch.where(over_B[:, None], end_BV, log_BV), after

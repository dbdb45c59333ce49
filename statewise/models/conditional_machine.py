"""The contract of every machine that writes given a source: a decoder whose initial state holds what was read.

B batch, S source time, T target time, E embedding width, C width of what a reader gives, V vocabulary.
"""

from abc import abstractmethod
from typing import Any, TypeVar

import torch
from torch import Tensor

from statewise.core import State, check_input
from statewise.models.reader import Encoded, Reader
from statewise.models.token_machine import TokenMachine

S = TypeVar("S", bound=State)


class ConditionalMachine(TokenMachine[S]):
    """`condition(source) -> state`, and from there a machine over target tokens like any other.

    Training, beam search and serving hold one of these and do not ask which.
    """

    reader: Reader
    looks: str | None  # the name under which a lens sees weights `[B, heads, S]` over the source; None: it never looks

    @abstractmethod
    def begin(self, encoded: Encoded) -> S:
        """The state of a decoder that knows this source and has written nothing."""

    @abstractmethod
    def embed(self, target_BT: Tensor) -> Tensor:
        """`[B, T, E]` vectors of target tokens."""

    @abstractmethod
    def follow(self, e_BTE: Tensor, state: S, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        """From the vectors that `embed` makes to `[B, T, V]` logits of the next token."""

    def forward(self, target_BT: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        check_input(target_BT, lengths_B)
        return self.follow(self.embed(target_BT), state or self.init_state(len(target_BT)), lengths_B)

    def condition(self, source: Any, lengths_B: Tensor | None = None) -> S:
        """Read a source; the decoder goes on from the state this gives."""
        return self.begin(self.reader(source, lengths_B))

    def init_state(self, batch: int) -> S:
        """The state after a source of no length."""
        nothing = self.like.new_zeros(batch, 0, self.reader.width)
        empty_B = torch.zeros(batch, dtype=torch.int64, device=self.like.device)
        return self.begin(Encoded(nothing, self.like.new_zeros(batch, self.reader.width), empty_B))

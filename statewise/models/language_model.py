"""Tokens in, a distribution over the next token out, by any machine."""

from abc import abstractmethod
from typing import TypeVar, final

import torch
from torch import Tensor

from statewise.core import State, check_input, past_end
from statewise.layers import Dropout, Embedding
from statewise.models.head import CategoricalHead
from statewise.models.stack import Stack, StackState
from statewise.models.token_machine import TokenMachine

S = TypeVar("S", bound=State)


class EmbeddedMachine(TokenMachine[S]):
    """Tokens become vectors, something reads those, and a head makes logits of its features."""

    embedding: Embedding
    input_dropout: Dropout
    head: CategoricalHead

    @property
    def vocab(self) -> int:
        return len(self.head.bias_V)

    @abstractmethod
    def read(self, x_BTE: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        """From token vectors to the head's input."""

    @abstractmethod
    def read_one(self, x_BE: Tensor, state: S) -> tuple[Tensor, S]:
        """`read` for one time step."""

    def forward(self, tokens_BT: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        y_BTD, after = self.features(tokens_BT, state, lengths_B)
        return past_end(self.head(y_BTD), lengths_B), after

    def features(self, tokens_BT: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        """The head's input."""
        check_input(tokens_BT, lengths_B)
        return self.read(self.input_dropout(self.embedding(tokens_BT)), state, lengths_B)

    def step(self, token_B: Tensor, state: S) -> tuple[Tensor, S]:
        y_BD, after = self.read_one(self.embed_one(token_B), state)
        return self.head(y_BD), after

    def embed_one(self, token_B: Tensor) -> Tensor:
        x_BE: Tensor = self.embedding(token_B)
        return self.input_dropout(x_BE[:, None])[:, 0] if self.training else x_BE


@final
class LanguageModel(EmbeddedMachine[StackState]):
    """`[B, T]` tokens to `[B, T, V]` logits: logits at t predict the token at t + 1."""

    def __init__(self, *, embedding: Embedding, input_dropout: Dropout, stack: Stack, head: CategoricalHead) -> None:
        super().__init__()
        self.embedding = embedding
        self.input_dropout = input_dropout
        self.stack = stack
        self.head = head

    def init_state(self, batch: int) -> StackState:
        return self.stack.init_state(batch)

    def read(
        self, x_BTE: Tensor, state: StackState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, StackState]:
        return self.stack(x_BTE, state, lengths_B)

    def read_one(self, x_BE: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        return self.stack.step(x_BE, state)

    def absorb(self, tokens_BT: Tensor, state: StackState | None = None, lengths_B: Tensor | None = None) -> StackState:
        """Without the head, which takes most of the memory for a long prompt and a large vocabulary."""
        check_input(tokens_BT, lengths_B)
        return self.stack.absorb(self.input_dropout(self.embedding(tokens_BT)), state, lengths_B)

    def reserve(self, state: StackState, tokens: int) -> tuple[StackState, int]:
        return self.stack.reserve(state, tokens)

    @torch.no_grad()
    def step_(self, token_B: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        y_BD, after = self.stack.step_(self.embed_one(token_B), state)
        return self.head(y_BD), after

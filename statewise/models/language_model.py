"""Tokens in, a distribution over the next token out, by any machine."""

from typing import final

import torch
from torch import Tensor

from statewise.core import check_input
from statewise.layers import Dropout, Embedding
from statewise.models.head import CategoricalHead
from statewise.models.stack import Stack, StackState
from statewise.models.token_machine import TokenMachine


@final
class LanguageModel(TokenMachine[StackState]):
    """`[B, T]` tokens to `[B, T, V]` logits: logits at t predict the token at t + 1."""

    def __init__(self, *, embedding: Embedding, input_dropout: Dropout, stack: Stack, head: CategoricalHead) -> None:
        super().__init__()
        self.embedding = embedding
        self.input_dropout = input_dropout
        self.stack = stack
        self.head = head

    @property
    def vocab(self) -> int:
        return len(self.head.bias_V)

    def init_state(self, batch: int) -> StackState:
        return self.stack.init_state(batch)

    def forward(
        self, tokens_BT: Tensor, state: StackState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, StackState]:
        y_BTD, after = self.features(tokens_BT, state, lengths_B)
        logits_BTV = self.head(y_BTD)
        if lengths_B is not None:
            past_BT = torch.arange(tokens_BT.shape[1], device=lengths_B.device) >= lengths_B[:, None]
            logits_BTV = logits_BTV.masked_fill(past_BT[:, :, None], 0.0)
        return logits_BTV, after

    def features(
        self, tokens_BT: Tensor, state: StackState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, StackState]:
        """The head's input."""
        check_input(tokens_BT, lengths_B)
        y_BTD, after = self.stack(self.input_dropout(self.embedding(tokens_BT)), state, lengths_B)
        return y_BTD, after

    def absorb(self, tokens_BT: Tensor, state: StackState | None = None, lengths_B: Tensor | None = None) -> StackState:
        """Without the head, which takes most of the memory for a long prompt and a large vocabulary."""
        check_input(tokens_BT, lengths_B)
        return self.stack.absorb(self.input_dropout(self.embedding(tokens_BT)), state, lengths_B)

    def step(self, token_B: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        y_BD, after = self.stack.step(self._embed_one(token_B), state)
        return self.head(y_BD), after

    def reserve(self, state: StackState, tokens: int) -> tuple[StackState, int]:
        return self.stack.reserve(state, tokens)

    @torch.no_grad()
    def step_(self, token_B: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        y_BD, after = self.stack.step_(self._embed_one(token_B), state)
        return self.head(y_BD), after

    def _embed_one(self, token_B: Tensor) -> Tensor:
        x_BE: Tensor = self.embedding(token_B)
        return self.input_dropout(x_BE[:, None])[:, 0] if self.training else x_BE

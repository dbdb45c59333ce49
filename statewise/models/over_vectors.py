"""A decoder that reads vectors in place of target tokens: what gradients are followed to.

B batch, T target time, E embedding width, V vocabulary.
"""

from typing import Any, TypeVar, final

import torch
from torch import Tensor

from statewise.core import Machine, State, one_step
from statewise.models.conditional_machine import ConditionalMachine

S = TypeVar("S", bound=State)


@final
class OverVectors(Machine[S]):
    """`[B, T, E]` to logits `[B, T, V]`. Vectors may be wider than the decoder's: of those the first E are read."""

    def __init__(self, decoder: ConditionalMachine[S], *, width: int) -> None:
        super().__init__()
        self.decoder = decoder
        self.width = width
        self.like = decoder.like

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        return self.decoder.embed(self.decoder.sample_input(batch, time, generator=generator))

    def init_state(self, batch: int) -> S:
        return self.decoder.init_state(batch)

    def forward(self, x: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        begun = self.init_state(x.shape[0]) if state is None else state
        return self.decoder.follow(x[..., : self.width], begun, lengths_B)

    def step(self, x: Tensor, state: S) -> tuple[Tensor, S]:
        return one_step(self.forward, x, state)


def over_vectors(decoder: ConditionalMachine[Any]) -> OverVectors[Any]:
    with torch.no_grad():
        width = decoder.embed(torch.zeros(1, 1, dtype=torch.int64, device=decoder.like.device)).shape[-1]
    return OverVectors(decoder, width=width)

"""Machines over tokens: the contract, those that learn by counting, and decoders that are conditioned on a source.

B batch, S source time, T time, E embedding width, C width of a reader's outputs, V vocabulary.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar, final

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from statewise.core import Machine, State, check_input, one_step
from statewise.models.reader import Encoded, Reader

S = TypeVar("S", bound=State)


class TokenMachine(Machine[S]):
    """`[B, T]` tokens to `[B, T, V]` logits: logits at t predict the token at t + 1."""

    step_axes = 1

    @property
    @abstractmethod
    def vocab(self) -> int: ...

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        return torch.randint(self.vocab, (batch, time), generator=generator).to(self.like.device)


class CountingMachine(TokenMachine[S]):
    """Learns a stream in one pass, without gradients. Its size depends on the text."""

    @abstractmethod
    def count(self, tokens: ArrayLike, *, end_id: int | None = None) -> None:
        """Count a stream of documents that each begin with `end_id`; earlier counts are discarded."""

    @abstractmethod
    def adopt(self, tensors: Mapping[str, Tensor]) -> None:
        """Load saved counts, or refuse them."""


class ConditionalMachine(TokenMachine[S]):
    """`condition(source) -> state`, and from there a machine over target tokens like any other.

    Training, beam search and serving work with any of them.
    """

    reader: Reader
    looks: str | None  # the name under which a lens sees weights `[B, heads, S]` over the source; None: it never looks

    @abstractmethod
    def begin(self, encoded: Encoded) -> S:
        """The decoder's initial state for this source."""

    @abstractmethod
    def embed(self, target_BT: Tensor) -> Tensor:
        """`[B, T, E]` vectors of target tokens."""

    @abstractmethod
    def follow(self, e_BTE: Tensor, state: S, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        """From the vectors that `embed` makes to `[B, T, V]` logits of the next token."""

    def forward(self, target_BT: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        check_input(target_BT, lengths_B)
        return self.follow(self.embed(target_BT), state or self.init_state(target_BT.shape[0]), lengths_B)

    def condition(self, source: Any, lengths_B: Tensor | None = None) -> S:
        """The decoder's initial state after reading a source."""
        return self.begin(self.reader(source, lengths_B))

    def init_state(self, batch: int) -> S:
        """The initial state for an empty source."""
        nothing = self.like.new_zeros(batch, 0, self.reader.width)
        empty_B = torch.zeros(batch, dtype=torch.int64, device=self.like.device)
        return self.begin(Encoded(nothing, self.like.new_zeros(batch, self.reader.width), empty_B))


@final
class VectorInput(Machine[S]):
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


def with_vector_input(decoder: ConditionalMachine[Any]) -> VectorInput[Any]:
    with torch.no_grad():
        width = decoder.embed(torch.zeros(1, 1, dtype=torch.int64, device=decoder.like.device)).shape[-1]
    return VectorInput(decoder, width=width)

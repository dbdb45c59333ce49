"""Machines over tokens, and those among them that learn by counting.

B batch, T time, V vocabulary.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import Machine, State

S = TypeVar("S", bound=State)


class TokenMachine(Machine[S]):
    """`[B, T]` tokens to `[B, T, V]` logits: logits at t speak of the token at t + 1."""

    @property
    @abstractmethod
    def vocab(self) -> int: ...

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        return torch.randint(self.vocab, (batch, time), generator=generator).to(self.like.device)


class CountingMachine(TokenMachine[S]):
    """Learns a stream in one pass, without gradients. How much it then holds depends on what it read."""

    @abstractmethod
    def count(self, tokens: NDArray[np.integer], *, end_id: int | None = None) -> None:
        """Forget what was counted before, and count this: documents that each begin with `end_id`."""

    @abstractmethod
    def adopt(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what another one had counted and saved, or refuse it."""

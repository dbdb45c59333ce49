"""Examples of unequal length: a limit on their length, and batches of similar lengths, a function of (seed, step).

N examples, B of them in a batch, T the longest of those.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from statewise.data.batch import draws, share
from statewise.data.lines import Where
from statewise.specs import UserError

Index = NDArray[np.int64]

_EXAMPLES, _BATCHES = 0, 1  # blocks of the random generator: the order of examples, the order of batches


@final
class RaggedBatches:
    """The examples of each step, an endless sequence with random access by step.

    An epoch is a new permutation of all examples, sorted by length within every `bucket` batches and cut into batches.
    The batches are shuffled, except a short one, which comes last. Each example is read once in an epoch. Where the
    short batch has no row for a process, that process reads a row of another one, which counts nothing (`divisor`).
    """

    def __init__(
        self, lengths_N: ArrayLike, *, batch: int, seed: int = 0, rank: int = 0, world: int = 1, bucket: int = 50
    ) -> None:
        assert 0 <= rank < world
        assert bucket >= 1
        self._lengths_N = np.asarray(lengths_N, dtype=np.int64)
        if not len(self._lengths_N):
            raise UserError("there are no examples to make batches of", fix="check what the data files hold")
        share(batch, rank=rank, world=world)
        self.steps_per_epoch = -(-len(self._lengths_N) // batch)
        self._batch, self._seed, self._rank, self._world, self._bucket = batch, seed, rank, world, bucket
        self._cached: tuple[int, Index, Index] | None = None

    def at(self, step: int) -> Index:
        """This process's share of `all_at`."""
        example_B = self.all_at(step)
        return example_B[:1] if self._stands_in(example_B) else example_B[self._mine(example_B)]

    def all_at(self, step: int) -> Index:
        """The examples that all processes together read at `step`, whatever their number."""
        epoch, number = divmod(step, self.steps_per_epoch)
        example_N, order_S = self._epoch(epoch)
        begin = int(order_S[number]) * self._batch
        return example_N[begin : begin + self._batch]

    def first_row(self, step: int) -> int:
        """The place of this process's first row in `all_at`."""
        example_B = self.all_at(step)
        return 0 if self._stands_in(example_B) else int(self._mine(example_B).start)

    def divisor(self, step: int, total: float) -> float:
        """Of this process's summed loss, where `total` is the weight of all rows: the mean over processes is then
        their summed loss over `total`. Infinite for a row that counts nothing.
        """
        return math.inf if self._stands_in(self.all_at(step)) else total / self._world

    def _stands_in(self, example_B: Index) -> bool:
        return self._rank >= len(example_B)

    def _mine(self, example_B: Index) -> slice:
        return share(max(len(example_B), self._world), rank=self._rank, world=self._world)

    def _epoch(self, epoch: int) -> tuple[Index, Index]:
        """The examples in the order of the batches, and the order in which batches are read."""
        if self._cached is None or self._cached[0] != epoch:
            count = len(self._lengths_N)
            shuffled_N = np.argsort(draws(self._seed, epoch, block=_EXAMPLES, count=count), kind="stable")
            group_N = np.arange(count) // (self._bucket * self._batch)
            example_N = shuffled_N[np.lexsort((self._lengths_N[shuffled_N], group_N))]
            full = count // self._batch
            order_S = np.argsort(draws(self._seed, epoch, block=_BATCHES, count=full), kind="stable")
            self._cached = epoch, example_N, np.append(order_S, np.arange(full, self.steps_per_epoch))
        return self._cached[1:]


def evaluation_batches(lengths_N: ArrayLike, *, batch: int) -> Iterator[Index]:
    """Every example once, the shortest first: little padding, no randomness."""
    assert batch >= 1
    order_N = np.argsort(np.asarray(lengths_N, dtype=np.int64), kind="stable")
    for begin in range(0, len(order_N), batch):
        yield order_N[begin : begin + batch]


def pad(sequences: Sequence[ArrayLike], *, value: int = 0) -> tuple[Tensor, Tensor]:
    """Rows padded with `value`, and their lengths: tokens_BT, lengths_B."""
    rows = [np.asarray(row, dtype=np.int64) for row in sequences]
    lengths_B = np.array([len(row) for row in rows], dtype=np.int64)
    tokens_BT = np.full((len(rows), lengths_B.max(initial=0)), value, dtype=np.int64)
    tokens_BT[np.arange(tokens_BT.shape[1]) < lengths_B[:, None]] = np.concatenate([np.zeros(0, np.int64), *rows])
    return torch.from_numpy(tokens_BT), torch.from_numpy(lengths_B)


Beyond = Literal["cut", "leave-out", "refuse"]


class LengthLimit(NamedTuple):
    """`kept`: indices of the examples that remain; `beyond`: the number of those too long."""

    kept: Index
    beyond: int


def limit_length(lengths: ArrayLike, *, longest: int | None, beyond: Beyond, where: Sequence[Where]) -> LengthLimit:
    """Which examples remain, given their lengths in tokens. With `beyond="cut"`, the caller takes `[:longest]`."""
    length_N = np.asarray(lengths, dtype=np.int64)
    too_long_N = np.zeros(len(length_N), dtype=bool) if longest is None else length_N > longest
    count = int(too_long_N.sum())
    if count and beyond == "refuse":
        first = int(np.argmax(too_long_N))
        raise UserError(
            f"{where[first]}: {length_N[first]} tokens, more than the longest allowed, {longest} "
            f"({count} of {len(length_N)} examples are)",
            fix=f"set longest = {length_N.max()}, or beyond = cut or leave-out",
        )
    return LengthLimit(np.flatnonzero(~too_long_N) if beyond == "leave-out" else np.arange(len(length_N)), count)

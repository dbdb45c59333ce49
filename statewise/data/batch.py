"""Batches of a token stream as a pure function of (seed, step, rank, world): nothing to save, nothing to replay.

B rows, T time steps.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import onto
from statewise.data.shards import Tokens, release
from statewise.specs import UserError

# A separate random stream for the random order; no epoch's number is as large.
_RANDOM_ORDER = 2**64 - 1
NUM_KEYS = 6  # that choose an order: the rounds of a Feistel network
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))

LARGEST_RESIDENT = 1 << 28  # largest stream, in bytes, that is copied to the device


# Steps after which the pages of a mapped file are released: the operating system may map two megabytes around each
# position, so a few steps of random rows would hold hundreds.
_RELEASE_EVERY = 4


class Batch(NamedTuple):
    """What one step reads. `resets_BT` is True where a row's state is reset *before* the token."""

    inputs_BT: Tensor
    targets_BT: Tensor
    resets_BT: Tensor | None
    fresh: bool


class Place(NamedTuple):
    """Where one step reads: the first position of each row, before wrapping around the end of the stream."""

    starts_B: NDArray[np.int64]
    length: int
    fresh: bool
    ends: bool  # the next step is fresh


class EvaluationBatch(NamedTuple):
    """A batch with a mask of the positions that count; the others warm up the state or are padding."""

    inputs_BT: Tensor
    targets_BT: Tensor
    resets_BT: Tensor | None
    counted_BT: Tensor
    fresh: bool


class Batches:
    """A token stream as an endless sequence of batches with random access by step.

    Position p predicts token p+1 from token p. In sequential order, an epoch cuts the stream (as a
    ring, from an offset of its own) into `batch` rows, and each row into windows: a row's next
    window goes on where the last one ended, so its state can be carried. In random order, every
    window starts anywhere, from the initial state.
    """

    def __init__(
        self,
        tokens: Tokens,
        *,
        end_id: int,
        batch: int,
        window: int,
        order: Literal["sequential", "random", "shuffled"] = "sequential",
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        begin_id: int | None = None,
    ) -> None:
        """`begin_id`: what is read in place of `end_id`."""
        assert 0 <= rank < world
        assert window >= 1
        positions = len(tokens) - 1
        mine = share(batch, rank=rank, world=world)
        if positions < batch:
            raise UserError(
                f"batch {batch} is larger than the training text: {positions} tokens to predict",
                fix=f"give more text, or a batch of at most {positions}" if positions >= world else "give more text",
            )
        self._tokens, self._end_id, self._begin_id = tokens, end_id, begin_id
        self.batch = batch  # rows of all processes together
        self._positions, self._order, self._seed = positions, order, seed
        self.first_row = mine.start  # of this process, among the rows of all
        self._mine_B = np.arange(mine.start, mine.stop, dtype=np.int64)
        self._row = positions // batch
        self.window = min(window, self._row if order == "sequential" else positions)

    @property
    def steps_per_epoch(self) -> int:
        if self._order == "sequential":
            return -(-self._row // self.window)
        return max(1, self._positions // (self.batch * self.window))

    def place(self, step: int) -> Place:
        """Where one step reads: a pure function of the step."""
        if self._order == "random":
            choices = self._positions - self.window + 1
            draws_B = draws(self._seed, _RANDOM_ORDER, block=step, count=self.batch)[self._mine_B]
            return Place((draws_B % np.uint64(choices)).astype(np.int64), self.window, fresh=True, ends=True)
        if self._order == "shuffled":
            return Place(self._shuffled(step * self.batch + self._mine_B), self.window, fresh=True, ends=True)
        epoch, index = divmod(step, self.steps_per_epoch)
        offset = int(draws(self._seed, epoch, block=0, count=1)[0]) % self._positions
        begin = index * self.window
        starts_B = offset + begin + self._mine_B * self._row
        length = min(self.window, self._row - begin)
        return Place(starts_B, length, fresh=index == 0, ends=index == self.steps_per_epoch - 1)

    def _shuffled(self, read_B: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where windows start, by how many were read before them since the beginning."""
        windows = self._positions // self.window
        starts_B = np.empty_like(read_B)
        for epoch in np.unique(read_B // windows):
            here_B = read_B // windows == epoch
            offset, *keys = draws(self._seed, int(epoch), block=1, count=1 + NUM_KEYS)
            place_N = permuted(read_B[here_B] % windows, windows, np.array(keys))
            starts_B[here_B] = int(offset) % self._positions + place_N * self.window
        return starts_B

    def at(self, step: int) -> Batch:
        """The batch of one step."""
        if step % _RELEASE_EVERY == 0:
            release(self._tokens)
        place = self.place(step)
        positions_BT = (place.starts_B[:, None] + np.arange(place.length)) % self._positions
        read = _gather(self._tokens, positions_BT, end_id=self._end_id, begin_id=self._begin_id)
        return Batch(*read, place.fresh)


def evaluation_lanes(
    tokens: Tokens,
    *,
    end_id: int,
    lanes: int,
    window: int,
    warm: int,
    limit: int | None = None,
    begin_id: int | None = None,
) -> Iterator[EvaluationBatch]:
    """Read the first `limit` positions of a stream (default: all) side by side, counting each once.

    A lane starts up to `warm` positions before the first one it counts. There are fewer lanes than
    asked for where a lane would otherwise warm up for longer than it counts.
    """
    assert window >= 1
    positions = min(len(tokens) - 1, limit if limit is not None else len(tokens))
    if positions < 1:
        return
    lanes = max(1, min(lanes, positions // max(window, warm)))
    borders = np.arange(lanes + 1, dtype=np.int64) * positions // lanes
    first_B, last_B = borders[:-1], borders[1:]
    starts_B = np.maximum(first_B - warm, 0)
    longest = int((last_B - starts_B).max())
    for number, begin in enumerate(range(0, longest, window)):
        if number % _RELEASE_EVERY == 0:
            release(tokens)
        steps_T = np.arange(begin, min(begin + window, longest))
        positions_BT = starts_B[:, None] + steps_T
        counted_BT = (positions_BT >= first_B[:, None]) & (positions_BT < last_B[:, None])
        read = _gather(tokens, np.minimum(positions_BT, positions - 1), end_id=end_id, begin_id=begin_id)
        yield EvaluationBatch(*read, torch.from_numpy(counted_BT), begin == 0)


def _gather(
    tokens: Tokens, positions_BT: NDArray[np.int64], *, end_id: int, begin_id: int | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Inputs, targets, and where a document starts: there the stream has the end of the one before."""
    inputs_BT = tokens[positions_BT].astype(np.int64)
    targets_BT = tokens[positions_BT + 1].astype(np.int64)
    resets_BT = inputs_BT == end_id
    resets = torch.from_numpy(resets_BT) if resets_BT.any() else None
    if begin_id is not None:
        inputs_BT[resets_BT] = begin_id
    return torch.from_numpy(inputs_BT), torch.from_numpy(targets_BT), resets


def share(batch: int, *, rank: int, world: int) -> slice:
    """The rows of a batch that one process reads: contiguous, and at most one more than any other process reads."""
    if batch < world:
        raise UserError(
            f"batch {batch} cannot be shared by {world} processes: each reads at least one row",
            fix=f"train.batch={world}, or fewer processes",
        )
    each, more = divmod(batch, world)
    first = rank * each + min(rank, more)
    return slice(first, first + each + (rank < more))


def draws(seed: int, stream: int, *, block: int, count: int) -> NDArray[np.uint64]:
    """Raw words of a counter-based random generator: NumPy keeps them the same in every version."""
    key = np.array([seed, stream], dtype=np.uint64)
    counter = np.array([0, block, 0, 0], dtype=np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(count)


def permuted(index_N: NDArray[np.int64], count: int, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Where each index of 0 … count - 1 goes, in the random order that `keys` choose: a bijection.

    Computed and never stored: a place takes constant time and memory.
    A Feistel network shuffles the numbers of just as many bits as `count` needs (one more, if that is odd). What leaves
    the range goes through it again, until it is back: fewer than four times in the mean.
    """
    assert len(keys) == NUM_KEYS
    half = np.uint64(max(1, (count - 1).bit_length() + 1 >> 1))
    mask = (np.uint64(1) << half) - np.uint64(1)
    out_N = index_N.astype(np.uint64)
    outside_N = np.ones(len(out_N), dtype=bool)
    while outside_N.any():
        out_N[outside_N] = _feistel(out_N[outside_N], half, mask, keys)
        outside_N = out_N >= count
    return out_N.astype(np.int64)


def _feistel(x_N: NDArray[np.uint64], half: np.uint64, mask: np.uint64, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    left_N, right_N = x_N >> half, x_N & mask
    for key in keys:
        left_N, right_N = right_N, left_N ^ (_hashed(right_N ^ key) & mask)
    return left_N << half | right_N


def _hashed(x_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: every bit of the result depends on every bit of the argument."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS):
        x_N = (x_N ^ x_N >> np.uint64(shift)) * multiplier
    return x_N ^ x_N >> np.uint64(31)


class ResidentTokens:
    """A token stream in device memory: a step sends positions, not tokens."""

    def __init__(self, tokens: Tokens, *, end_id: int, device: torch.device) -> None:
        tokens = np.asarray(tokens)
        # PyTorch cannot index unsigned tensors everywhere; the mask removes the sign again.
        signed: NDArray[np.signedinteger] = tokens.copy().view(f"i{tokens.dtype.itemsize}")
        self._tokens, self._mask = torch.from_numpy(signed).to(device), int(np.iinfo(tokens.dtype).max)
        self._positions, self._end_id = len(tokens) - 1, end_id
        self._begins = np.flatnonzero(tokens[:-1] == end_id)  # starts of documents

    def begins_documents(self, place: Place) -> bool:
        """Whether a document starts inside any row: known on the host, without reading the tokens."""
        first_B = place.starts_B % self._positions
        last_B = first_B + place.length
        around_B = np.searchsorted(self._begins, np.stack([first_B, last_B, last_B - self._positions]))
        within = around_B[1] > around_B[0]
        again = (last_B > self._positions) & (around_B[2] > 0)  # the stream is a ring
        return bool((within | again).any())

    def starts(self, place: Place) -> Tensor:
        """The first position of each row, on the device."""
        return onto(self._tokens.device, torch.from_numpy(place.starts_B % self._positions))

    def read(self, starts_B: Tensor, times: slice) -> tuple[Tensor, Tensor]:
        """Inputs and targets `[B, T]` at the given time steps after the starts."""
        times_T = torch.arange(times.start, times.stop, device=starts_B.device)
        at_BT = (starts_B[:, None] + times_T) % self._positions
        inputs_BT, targets_BT = (self._tokens[at].long() & self._mask for at in (at_BT, at_BT + 1))
        return inputs_BT, targets_BT

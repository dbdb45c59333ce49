"""A tokenized text of any length, and a language model that reads it chunk by chunk.

T time steps, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Machine, State, forward_with_resets, leaves
from statewise.data import END
from statewise.decoding import TextStream
from statewise.inspection.progress import Progress

_CHUNK = 512  # tokens whose logits are held at a time
_REACH = 2048  # tokens after which a memory that grows starts afresh, where the run knows no window of its own

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Reading:
    """Tokens in the order in which they are read. Each document begins with `end_id`."""

    tokens_T: Tensor
    end_id: int | None
    decode: Decode | None
    source: str  # where the text is from, in words
    backwards: bool = False  # the text is read from its end
    window: int | None = None  # the model never learned beyond so many tokens: it starts afresh there

    def __len__(self) -> int:
        return len(self.tokens_T)

    def part(self, start: int, stop: int) -> "Reading":
        return replace(self, tokens_T=self.tokens_T[start:stop])

    def names(self, start: int = 0, stop: int | None = None) -> list[str]:
        """What each token writes: of a character in several tokens, the last one has all of it."""
        ids = [int(one) for one in self.tokens_T[start:stop]]
        if self.decode is None:
            return [str(one) for one in ids]
        return _written(ids, self.decode, self.end_id, self.backwards)


def _written(ids: list[int], decode: Decode, end_id: int | None, backwards: bool) -> list[str]:
    ordered = ids[::-1] if backwards else ids
    stream, names = TextStream(decode), []
    for one in ordered:
        if one == end_id:
            stream = TextStream(decode)
            names.append(END)
        else:
            names.append(stream.feed(one))
    return names[::-1] if backwards else names


def reach(model: Machine[Any], reading: Reading) -> int | None:
    """After how many tokens the model starts afresh; None: its memory is carried through the whole text."""
    if reading.window is not None:
        return reading.window
    grows = any(leaf.numel() == 0 for _, leaf in leaves(model.init_state(1)))
    return _REACH if grows else None


class Read(NamedTuple):
    """A stretch of the text: what was read, what came next, and the logits for it."""

    start: int
    inputs_T: Tensor
    targets_T: Tensor
    logits_TV: Tensor
    position_T: Tensor  # how many tokens the model had read before each, since it last started afresh


@torch.no_grad()
def read(model: Machine[Any], reading: Reading, progress: Progress, *, what: str = "reading") -> Iterator[Read]:
    """The text from beginning to end, the state carried; documents start afresh, and so do windows, if any."""
    device = model.like.device
    inputs_T, targets_T = reading.tokens_T[:-1].to(device), reading.tokens_T[1:].to(device)
    limit = reach(model, reading)
    chunk = _CHUNK if limit is None else min(_CHUNK, limit)
    state: State = model.init_state(1)
    since = 0  # tokens since the state was last fresh
    starts = [
        at
        for begin in range(0, len(inputs_T), limit or len(inputs_T) or 1)
        for at in _cuts(begin, limit, chunk, len(inputs_T))
    ]
    for start, stop in progress.over(starts, what):
        if limit is not None and start % limit == 0:
            state, since = model.init_state(1), 0
        part_T = inputs_T[start:stop]
        resets_T = (
            part_T == reading.end_id if reading.end_id is not None else torch.zeros_like(part_T, dtype=torch.bool)
        )
        if bool(resets_T.any()):
            logits_BTV, state = forward_with_resets(
                model, part_T[None], state, resets_T[None], initial=model.init_state(1)
            )
        else:
            logits_BTV, state = model(part_T[None], state)
        position_T = _since(resets_T, since)
        since = int(position_T[-1]) + 1
        yield Read(start, part_T, targets_T[start:stop], logits_BTV[0].float(), position_T)


def _cuts(begin: int, limit: int | None, chunk: int, end: int) -> list[tuple[int, int]]:
    stop = end if limit is None else min(begin + limit, end)
    return [(at, min(at + chunk, stop)) for at in range(begin, stop, chunk)]


def _since(resets_T: Tensor, before: int) -> Tensor:
    """Tokens read before each position since the last fresh start."""
    at_T = torch.arange(len(resets_T), device=resets_T.device)
    last_T = torch.where(resets_T, at_T, -before).cummax(0).values
    return at_T - last_T


def nats(one: Read) -> Tensor:
    """What each token cost: `-log p(next)`."""
    return F.cross_entropy(one.logits_TV, one.targets_T, reduction="none")


def windows(reading: Reading, length: int, count: int) -> Tensor:
    """Up to `count` stretches of `length` tokens, spread over the text; where it can be had, each of one document."""
    last = len(reading) - length
    assert last >= 0, (len(reading), length)
    starts = sorted({round(last * (at + 0.5) / count) for at in range(count)})
    if reading.end_id is not None:
        starts = [_within_a_document(reading.tokens_T, reading.end_id, start, length) for start in starts]
    return torch.stack([reading.tokens_T[start : start + length] for start in sorted(set(starts))])


def _within_a_document(tokens_T: Tensor, end_id: int, start: int, length: int) -> int:
    """The place itself, or the nearest one before or after it from which on no other document begins."""
    last = len(tokens_T) - length
    ends = (tokens_T == end_id).nonzero()[:, 0].tolist()
    cut = [0, *ends, len(tokens_T)]
    best = [
        min(max(start, first), after - length)
        for first, after in pairwise(cut)
        if after - first >= length and min(max(start, first), after - length) <= last
    ]
    return min(best, key=lambda one: abs(one - start), default=start)


def fresh_starts(model: Machine[Any], reading: Reading) -> NDArray[np.intp]:
    """Tokens before which the state is the initial one, the first of all among them."""
    fresh_T = np.zeros(len(reading), dtype=bool)
    fresh_T[:: reach(model, reading) or len(reading)] = True
    if reading.end_id is not None:
        fresh_T |= reading.tokens_T.cpu().numpy() == reading.end_id
    return np.flatnonzero(fresh_T)

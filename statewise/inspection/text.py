"""Reading a text of any length with a language model, chunk by chunk.

T time steps, V vocabulary.
"""

import copy
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from statewise.core import State, forward_with_resets
from statewise.display import Progress
from statewise.tasks import TextSpecimens

_CHUNK = 512  # tokens whose logits are held at a time


class Chunk(NamedTuple):
    """A part of the text: inputs, the tokens that came next, and the logits for them."""

    start: int
    inputs_T: Tensor
    targets_T: Tensor
    logits_TV: Tensor
    position_T: Tensor  # tokens read before each since the state was last reset

    @property
    def nats_T(self) -> Tensor:
        """`-log p(next)` of each token."""
        return F.cross_entropy(self.logits_TV, self.targets_T, reduction="none")


@torch.no_grad()
def read(text: TextSpecimens, progress: Progress, *, what: str = "reading") -> Iterator[Chunk]:
    """The text from beginning to end. The state is carried, and reset at documents and at windows, if any."""
    model, limit = text.model, text.reach
    device = model.like.device
    inputs_T, targets_T = text.tokens_T[:-1].to(device), text.tokens_T[1:].to(device)
    chunk = _CHUNK if limit is None else min(_CHUNK, limit)
    state: State = model.init_state(1)
    since = 0  # tokens since the state was last reset
    parts = [
        part
        for begin in range(0, len(inputs_T), limit or len(inputs_T) or 1)
        for part in _cuts(begin, limit, chunk, len(inputs_T))
    ]
    for start, stop in progress.over(parts, what):
        if limit is not None and start % limit == 0:
            state, since = model.init_state(1), 0
        part_T = inputs_T[start:stop]
        resets_T = part_T == text.end_id if text.end_id is not None else torch.zeros_like(part_T, dtype=torch.bool)
        if bool(resets_T.any()):
            logits_BTV, state = forward_with_resets(
                model, part_T[None], state, resets_T[None], initial=model.init_state(1)
            )
        else:
            logits_BTV, state = model(part_T[None], state)
        position_T = _since(resets_T, since)
        since = int(position_T[-1]) + 1
        yield Chunk(start, part_T, targets_T[start:stop], logits_BTV[0].float(), position_T)


def _cuts(begin: int, limit: int | None, chunk: int, end: int) -> list[tuple[int, int]]:
    stop = end if limit is None else min(begin + limit, end)
    return [(at, min(at + chunk, stop)) for at in range(begin, stop, chunk)]


def _since(resets_T: Tensor, before: int) -> Tensor:
    """Tokens read before each position since the last reset."""
    at_T = torch.arange(len(resets_T), device=resets_T.device)
    last_T = torch.where(resets_T, at_T, -before).cummax(0).values
    return at_T - last_T


def fresh_starts(text: TextSpecimens) -> NDArray[np.intp]:
    """Tokens before which the state is the initial one: the first, those of documents, those of windows."""
    fresh_T = np.zeros(len(text.tokens_T), dtype=bool)
    fresh_T[:: text.reach or len(text.tokens_T)] = True
    if text.end_id is not None:
        fresh_T |= text.tokens_T.cpu().numpy() == text.end_id
    return np.flatnonzero(fresh_T)


def windows(text: TextSpecimens, length: int, count: int) -> Tensor:
    """Up to `count` windows of `length` tokens, spread over the text; where possible, each within a document."""
    rows = text.windows(length - 1, count).rows
    return torch.stack([text.tokens_T[begin : end + 1] for begin, end in rows])


def with_tokens(text: TextSpecimens, tokens_T: Tensor) -> TextSpecimens:
    """The same with other tokens, in one row."""
    made = copy.copy(text)
    made.tokens_T, made.rows, made._last = tokens_T, [], None
    return made

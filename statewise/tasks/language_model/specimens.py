"""A text under a lens: windows of it as rows, each token asked for after those before it.

N copies of a row, T tokens of it, E embedding width, V vocabulary.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Machine, forward_with_resets, leaves
from statewise.data import END
from statewise.decoding import TextStream
from statewise.display import Progress, SilentProgress
from statewise.models import EmbeddedMachine
from statewise.tasks.specimen import Choices, Floats, Poll, Specimen, Specimens, Words, position

_LENGTH = 256  # tokens of a row
_CHUNK = 512  # tokens whose logits are held at a time
_REACH = 2048  # tokens after which a state that grows is reset, where the run has no window of its own

Decode = Callable[[Sequence[int]], str]


class Row(NamedTuple):
    """Inputs are the tokens from `begin` to `end`, targets those one further."""

    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


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


@final
class OverVectors(Machine[Any]):
    """A language model that reads token vectors `[B, T, E]` in place of tokens: gradients are followed to them."""

    def __init__(self, model: EmbeddedMachine[Any]) -> None:
        super().__init__()
        self.model = model
        self.like = model.like

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        x_BTE: Tensor = self.model.embedding(self.model.sample_input(batch, time, generator=generator))
        return x_BTE

    def init_state(self, batch: int) -> Any:
        return self.model.init_state(batch)

    def forward(self, x: Tensor, state: Any = None, lengths_B: Tensor | None = None) -> tuple[Tensor, Any]:
        y_BTD, after = self.model.read(x, state, lengths_B)
        return self.model.head(y_BTD), after

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        y_BD, after = self.model.read_one(x, state)
        return self.model.head(y_BD), after


@final
class TextSpecimens(Specimens):
    """Tokens in the order in which they are read, cut into rows that lie within a document each.

    Every row is read from the initial state. `read` and `answers` carry the state from a row to the next, as evaluation
    does.
    """

    model: Machine[Any]
    has_truth = True
    words = Words(
        *("token", "token", "nats", "tokens between it and the answer", "token"),
        text=True,
        label="token",
        labels="tokens",
        writes=True,
    )

    def __init__(
        self,
        model: Machine[Any],
        tokens_T: Tensor,
        *,
        end_id: int | None,
        decode: Decode | None,
        source: str,
        backwards: bool = False,
        window: int | None = None,
    ) -> None:
        """Each document begins with `end_id`. With `window`, the state is reset every so many tokens: the model never
        learned beyond them. `backwards`: the text is read from its end.
        """
        self.model, self.tokens_T, self.end_id, self.decode = model, tokens_T, end_id, decode
        self.source, self.backwards, self.window = source, backwards, window
        self.rows = self._consecutive(min(_LENGTH, window or _LENGTH))

    def __len__(self) -> int:
        return len(self.rows)

    def length(self, number: int) -> int:
        return len(self.rows[number])

    def windows(self, length: int, count: int) -> Self:
        """The same text in up to `count` rows of `length` tokens, spread over it; each within a document if it can."""
        last = len(self.tokens_T) - 1 - length
        assert last >= 0, (len(self.tokens_T), length)
        bounds = self._documents()
        wanted = {round(last * (at + 0.5) / count) for at in range(count)}
        return self._cut([Row(at, at + length) for at in sorted({_within(bounds, at, length, last) for at in wanted})])

    def window_tokens(self, length: int, count: int) -> Tensor:
        """Up to `count` windows of `length` tokens, `[B, T]`: the inputs of a row and its last target."""
        return torch.stack([self.tokens_T[begin : end + 1] for begin, end in self.windows(length - 1, count).rows])

    def with_tokens(self, tokens_T: Tensor) -> Self:
        """The same with other tokens, in no row."""
        made = self._cut([])
        made.tokens_T = tokens_T
        return made

    def _cut(self, rows: list[Row]) -> Self:
        made = copy.copy(self)
        made.rows, made._last = rows, None
        return made

    def names(self, begin: int = 0, end: int | None = None) -> list[str]:
        """The text of each token: of a character in several tokens, the last one has all of it."""
        ids = self.tokens_T[begin:end].tolist()
        if self.decode is None:
            return [str(token) for token in ids]
        stream, names = TextStream(self.decode), []
        for token in reversed(ids) if self.backwards else ids:
            if token == self.end_id:
                stream = TextStream(self.decode)
            names.append(END if token == self.end_id else stream.feed(token))
        return names[::-1] if self.backwards else names

    def at(self, number: int) -> Specimen:
        begin, end = self.rows[number]
        ids_T, target_T = (self.tokens_T[s].to(self._device) for s in (slice(begin, end), slice(begin + 1, end + 1)))
        machine, x_TE, enter = self._entry(ids_T)

        def distance(question: int) -> Floats:
            away: Floats = question - np.arange(end - begin, dtype=np.float64)
            return np.where(away >= 0, away, np.nan)  # later tokens have no influence

        def judge(logits_NTV: Tensor, x_NTE: Tensor) -> Tensor:
            return F.cross_entropy(logits_NTV.mT, target_T.expand(len(logits_NTV), -1), reduction="none")

        pieces = tuple(self.names(begin, end + 1))
        return Specimen(
            name=f"tokens {begin:,} to {end:,}",
            pieces=pieces[:-1],
            x_TE=x_TE,
            enter=enter,
            read=lambda z_NTI: machine(z_NTI)[0],
            judge=judge,
            answer=lambda logits_NTV, x_NTE: logits_NTV.softmax(-1),
            questions=pieces[1:],
            distance=distance,
            machine=machine,
            signals={"position": position(end - begin)},
        )

    @torch.no_grad()
    def read(self, progress: Progress | None = None, *, what: str = "reading") -> Iterator[Chunk]:
        """The text from beginning to end. The state is carried, and reset at documents and at windows, if any."""
        model, limit = self.model, self.reach
        inputs_T, targets_T = self.tokens_T[:-1].to(self._device), self.tokens_T[1:].to(self._device)
        end = len(inputs_T)
        borders = sorted({*range(0, end, limit or end or 1), end})
        parts = [
            (at, min(at + min(_CHUNK, limit or _CHUNK), stop), at == begin)
            for begin, stop in pairwise(borders)
            for at in range(begin, stop, min(_CHUNK, limit or _CHUNK))
        ]
        state, since = model.init_state(1), 0  # tokens since the state was last reset
        for start, stop, fresh in (progress or SilentProgress()).over(parts, what):
            if fresh:
                state, since = model.init_state(1), 0
            part_T = inputs_T[start:stop]
            resets_T = torch.zeros_like(part_T, dtype=torch.bool) if self.end_id is None else part_T == self.end_id
            if bool(resets_T.any()):
                initial = model.init_state(1)
                logits_BTV, state = forward_with_resets(model, part_T[None], state, resets_T[None], initial=initial)
            else:
                logits_BTV, state = model(part_T[None], state)
            position_T = _since(resets_T, since)
            since = int(position_T[-1]) + 1
            yield Chunk(start, part_T, targets_T[start:stop], logits_BTV[0].float(), position_T)

    @torch.no_grad()
    def answers(self, poll: Poll) -> Choices:
        parts, vocab = [], 0
        for chunk in self.read():
            poll()
            log_TV = chunk.logits_TV.log_softmax(-1)
            best_T, guess_T = log_TV.max(-1)
            entropy_T, vocab = torch.special.entr(log_TV.exp()).sum(-1), log_TV.shape[1]
            results = (guess_T, best_T.exp(), chunk.nats_T, entropy_T, chunk.position_T)
            parts.append([part_T.cpu().numpy() for part_T in results])
        asked_N = np.concatenate([np.arange(begin, end) for begin, end in self.rows])
        guess_N, *numbers = (np.concatenate(part)[asked_N] for part in zip(*parts))
        sure_N, nats_N, entropy_N, along_N = (part_N.astype(np.float64) for part_N in numbers)
        lengths = [len(row) for row in self.rows]
        return Choices(
            names=tuple(self._spelled(token) for token in range(vocab)),
            truth_N=self.tokens_T[1:].cpu().numpy()[asked_N],
            guess_N=guess_N,
            sure_N=sure_N,
            nats_N=nats_N,
            entropy_N=entropy_N,
            row_N=np.repeat(np.arange(len(self)), lengths),
            place_N=np.concatenate([np.arange(length) for length in lengths]),
            along_N=along_N,
            along="tokens read before",
        )

    @property
    def fresh_starts(self) -> list[int]:
        """Tokens before which the state is the initial one: the first, those of documents, those of windows."""
        return sorted({*range(0, len(self.tokens_T), self.reach or len(self.tokens_T)), *self._starts})

    @property
    def reach(self) -> int | None:
        """After how many tokens the state is reset; None: it is carried through the whole text."""
        grows = any(leaf.numel() == 0 for _, leaf in leaves(self.model.init_state(1)))
        return self.window if self.window is not None else _REACH if grows else None

    @property
    def _device(self) -> torch.device:
        return self.model.like.device

    @property
    def _starts(self) -> set[int]:
        return set() if self.end_id is None else set((self.tokens_T == self.end_id).nonzero()[:, 0].tolist())

    def _documents(self) -> list[int]:
        """Where documents begin, and the end of all."""
        return [*sorted({0, *self._starts}), len(self.tokens_T)]

    def _consecutive(self, length: int) -> list[Row]:
        """All tokens, each asked for once: the last of a document is followed by the symbol that begins the next."""
        bounds = [*self._documents()[:-1], len(self.tokens_T) - 1]
        return [Row(at, min(at + length, end)) for begin, end in pairwise(bounds) for at in range(begin, end, length)]

    def _entry(self, ids_T: Tensor) -> tuple[Machine[Any], Tensor, Callable[[Tensor], Tensor]]:
        """What reads, what enters at each place, and how that is read. A model without vectors reads the tokens."""
        if not isinstance(self.model, EmbeddedMachine):
            return self.model, ids_T[:, None], lambda x_NT1: x_NT1[..., 0]
        with torch.no_grad():
            x_TE = self.model.embedding(ids_T)
        return OverVectors(self.model), x_TE, lambda x_NTE: x_NTE

    def _spelled(self, token: int) -> str:
        if token == self.end_id:
            return END
        return f"#{token}" if self.decode is None else self.decode([token]) or f"#{token}"


def _since(resets_T: Tensor, before: int) -> Tensor:
    """Tokens read before each position since the last reset."""
    at_T = torch.arange(len(resets_T), device=resets_T.device)
    last_T = torch.where(resets_T, at_T, -before).cummax(0).values
    return at_T - last_T


def _within(bounds: Sequence[int], start: int, length: int, last: int) -> int:
    """`start`, or the nearest place to it from which `length` tokens and the next lie in one document."""
    able = [
        min(max(start, begin), end - length - 1)
        for begin, end in pairwise(bounds)
        if end - begin > length and min(max(start, begin), end - length - 1) <= last
    ]
    return min(able, key=lambda place: abs(place - start), default=start)

"""A text under a lens: windows of it as rows, each token asked for after those before it.

N copies of a row, T tokens of it, E embedding width, V vocabulary.
"""

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Machine, leaves
from statewise.data import END
from statewise.decoding import TextStream
from statewise.models import EmbeddedMachine
from statewise.tasks.specimen import Choices, Floats, Poll, Specimen, Specimens, Words, position

_LENGTH = 256  # tokens of a row
_REACH = 2048  # tokens after which a state that grows is reset, where the run has no window of its own

Decode = Callable[[Sequence[int]], str]


class Row(NamedTuple):
    """Inputs are the tokens from `begin` to `end`, targets those one further."""

    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


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

    Every row is read from the initial state. `answers` carries the state from a row to the next, as evaluation does.
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
        rows: Sequence[Row] | None = None,
    ) -> None:
        """Each document begins with `end_id`. With `window`, the state is reset every so many tokens: the model never
        learned beyond them. `backwards`: the text is read from its end.
        """
        self.model, self.tokens_T, self.end_id, self.decode = model, tokens_T, end_id, decode
        self.source, self.backwards, self.window = source, backwards, window
        self.rows = self._consecutive(min(_LENGTH, window or _LENGTH)) if rows is None else list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def length(self, number: int) -> int:
        return len(self.rows[number])

    def windows(self, length: int, count: int) -> "TextSpecimens":
        """The same text in up to `count` rows of `length` tokens, spread over it; each within a document if it can."""
        last = len(self.tokens_T) - 1 - length
        assert last >= 0, (len(self.tokens_T), length)
        bounds = self._documents()
        wanted = {round(last * (at + 0.5) / count) for at in range(count)}
        made = copy.copy(self)
        made.rows = [Row(at, at + length) for at in sorted({_within(bounds, at, length, last) for at in wanted})]
        made._last = None
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
    def answers(self, poll: Poll) -> Choices:
        parts, before, vocab = [], [], 0
        state, read, limit, starts = self.model.init_state(1), 0, self.reach, self._starts
        for number, (begin, end) in enumerate(self.rows):
            poll()
            continues = number > 0 and self.rows[number - 1].end == begin and begin not in starts
            if not continues or (limit is not None and read + end - begin > limit):
                state, read = self.model.init_state(1), 0
            tokens_T = self.tokens_T[begin : end + 1].to(self._device)
            logits_1TV, state = self.model(tokens_T[None, :-1], state)
            log_TV = logits_1TV[0].float().log_softmax(-1)
            best_T, guess_T = log_TV.max(-1)
            nats_T = -log_TV.gather(1, tokens_T[1:, None])[:, 0]
            results = (guess_T, best_T.exp(), nats_T, torch.special.entr(log_TV.exp()).sum(-1))
            parts.append([part_T.cpu().numpy() for part_T in results])
            before.append(np.arange(read, read + end - begin, dtype=np.float64))
            read, vocab = read + end - begin, log_TV.shape[1]
        guess_N, *numbers = (np.concatenate(part) for part in zip(*parts))
        sure_N, nats_N, entropy_N = (part_N.astype(np.float64) for part_N in numbers)
        lengths = [len(row) for row in self.rows]
        return Choices(
            names=tuple(self._spelled(token) for token in range(vocab)),
            truth_N=np.concatenate([self.tokens_T[begin + 1 : end + 1].cpu().numpy() for begin, end in self.rows]),
            guess_N=guess_N,
            sure_N=sure_N,
            nats_N=nats_N,
            entropy_N=entropy_N,
            row_N=np.repeat(np.arange(len(self)), lengths),
            place_N=np.concatenate([np.arange(length) for length in lengths]),
            along_N=np.concatenate(before),
            along="tokens read before",
        )

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


def _within(bounds: Sequence[int], start: int, length: int, last: int) -> int:
    """`start`, or the nearest place to it from which `length` tokens and the next lie in one document."""
    able = [
        min(max(start, begin), end - length - 1)
        for begin, end in pairwise(bounds)
        if end - begin > length and min(max(start, begin), end - length - 1) <= last
    ]
    return min(able, key=lambda place: abs(place - start), default=start)

"""What a run shows to lenses: rows of its data, how each of them is read, and where it answers at which cost.

A lens asks these and nothing else, so that it knows neither the task nor the architecture.
N copies of a row, T places in it, E numbers that enter at a place, I that are read there, C that reading gives,
Q questions, K classes or channels, W windows of a series, H time steps ahead.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from statewise.core import Composer, Machine, State
from statewise.encoders import seen_backwards
from statewise.models import Encoded, Reader

Floats = NDArray[np.float64]
Index = NDArray[np.int64]
Poll = Callable[[], None]

UNKNOWN = -1  # no truth is known


def as_read(name: str, places: int) -> Index:
    """What is observed comes from the first place to the last."""
    return np.arange(places)


class Part(NamedTuple):
    """A stretch of a row."""

    name: str
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


class Composed(NamedTuple):
    """What makes the state of a place from those below it, several at a call; the places in the order of the calls."""

    composer: Composer[Any]
    order_T: Index


@dataclass(frozen=True)
class Specimen:
    """One row. `judge(read(enter(x)), x)` is what its answers cost, `[N, Q]`; `answer` is what they are, `[N, Q, K]`.

    Where a row is read along time, `machine` is what does it: `read(z)` is `machine(z)[0]`. Where it goes on from what
    something else has read, `read(z)` is `machine(z[:, first:], begin(z))[0]`.
    """

    name: str  # where it is from
    pieces: tuple[str, ...]  # what stands at each place, for people
    x_TE: Tensor
    enter: Callable[[Tensor], Tensor]  # [N, T, E] to [N, T, I]
    read: Callable[[Tensor], Tensor]  # [N, T, I] to what all layers give
    judge: Callable[[Tensor, Tensor], Tensor]
    answer: Callable[[Tensor, Tensor], Tensor]
    questions: tuple[str, ...]  # what is asked, each in a few words
    # How far before a question's answer each place lies; below 0: after it; nan: it has no say in it.
    distance: Callable[[int], Floats]
    machine: Machine[Any] | None = None
    first: int = 0  # the place at which the machine begins
    begin: Callable[[Tensor], State] | None = None  # the state that it has there; None: that of having read nothing
    # What else goes from place to place inside of `read` or `begin`, by names that `seen_by` and `seen_order` know.
    readers: Mapping[str, Machine[Any]] = field(default_factory=dict)
    composed: Composed | None = None  # of a row that is a tree
    looks: str | None = None  # the name under which it shows its looks at what stands before `first`; None: it has none
    parts: tuple[Part, ...] = ()  # of a row that is several texts
    signals: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # what a unit may stand for, by place
    seen_by: Callable[[str], Part] | None = None  # the stretch that is read by what shows a name; None: all of it
    seen_order: Callable[[str, int], Index] = as_read  # the places in it of what is observed under a name

    def __len__(self) -> int:
        return len(self.pieces)

    def begun(self, z_NTI: Tensor) -> State:
        """The state with which the machine begins."""
        assert self.machine is not None
        state: State = self.machine.init_state(len(z_NTI)) if self.begin is None else self.begin(z_NTI)
        return state

    def stretch(self, name: str) -> Part:
        return Part("", 0, len(self)) if self.seen_by is None else self.seen_by(name)

    def seen_at(self, name: str, steps: int) -> Index | None:
        """The places of what was observed so often under a name; None: it is not seen place by place."""
        part = self.stretch(name)
        return part.begin + self.seen_order(name, len(part)) if steps == len(part) else None

    def costs(self, x_NTE: Tensor) -> Tensor:
        return self.judge(self.read(self.enter(x_NTE)), x_NTE)


class Words(NamedTuple):
    """The words that lenses use for a task."""

    place: str  # what stands at a place: token, word, time step, cell, node
    question: str  # what an answer is of: row, word, node, time step
    loss: str  # what answers cost, with its unit
    distance: str  # what lies between a place and an answer; "": nothing that could be counted
    step: str = ""  # what that is counted in
    text: bool = False  # pieces are those of a text
    spaced: bool = False  # with a space between them
    classes: bool = True  # answers are one of several, and not numbers
    label: str = "class"  # what one of the several is
    labels: str = "classes"
    writes: bool = False  # an answer is what comes next, and not what stands there


class Choices(NamedTuple):
    """Answers that are one of several, N of them: of rows, words or nodes."""

    names: tuple[str, ...]
    truth_N: Index  # UNKNOWN: not known, or never shown in training
    guess_N: Index
    sure_N: Floats  # the probability of the guess
    nats_N: Floats  # nan where there is no truth
    entropy_N: Floats  # nats that the model expected to pay
    row_N: Index
    place_N: Index
    along_N: Floats  # what the cost is shown against
    along: str

    @property
    def known_N(self) -> Index:
        """The truth or, where it is not known, the guess."""
        known_N: Index = np.where(self.truth_N == UNKNOWN, self.guess_N, self.truth_N)
        return known_N


class Courses(NamedTuple):
    """Forecasts, each of some time steps ahead; what is missing is nan."""

    loss_WH: Floats
    loss: str
    naive_WH: Floats | None  # of repeating the last value
    origin_W: Index  # the time step of its series that is forecast first
    row_W: Index


class Specimens(ABC):
    """All rows that are looked at."""

    source: str  # where they are from, in words
    model: nn.Module
    has_truth: bool  # where it is not known, the model's own answer stands in for it
    words: Words
    _last: tuple[int, Specimen] | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def length(self, number: int) -> int:
        """Places of a row, without making it."""

    @abstractmethod
    def at(self, number: int) -> Specimen: ...

    def precise(self) -> Self:
        """The same in double precision: small gradients must not be noise."""
        made = copy.copy(self)
        made.model = copy.deepcopy(self.model).double()
        return made

    @abstractmethod
    def answers(self, poll: Poll) -> Choices | Courses:
        """Of all rows at once."""

    def shown(self, choices: Choices, number: int) -> tuple[str, str]:
        """An answer's surroundings and what it is of, for people."""
        row = int(choices.row_N[number])
        if self._last is None or self._last[0] != row:  # of a long row, many answers are shown
            self._last = row, self.at(row)
        one = self._last[1]
        between = " " if self.words.spaced else ""
        place = int(choices.place_N[number])
        if place == UNKNOWN:
            return one.name, between.join(one.pieces)
        if self.words.writes:
            return between.join(one.pieces[: place + 1]), choices.names[int(choices.known_N[number])]
        return between.join(one.pieces[max(place - 8, 0) : place]), one.pieces[place]


def chosen_nats(p_NQK: Tensor, label_Q: Tensor) -> Tensor:
    """`-log p` of the label of each question, `[N, Q]`."""
    picked_NQ1 = p_NQK.gather(2, label_Q[None, :, None].expand(len(p_NQK), -1, 1))
    return -picked_NQ1[..., 0].clamp(min=torch.finfo(p_NQK.dtype).tiny).log()


def choices(
    names: tuple[str, ...],
    log_NK: Floats,
    truth_N: Index,
    *,
    row_N: Index,
    place_N: Index,
    along_N: Floats,
    along: str,
    guess_N: Index | None = None,
) -> Choices:
    """From log-probabilities. A guess is the likeliest, where nothing else is given."""
    guess_N = log_NK.argmax(-1) if guess_N is None else guess_N
    seen_N = truth_N >= 0
    nats_N = np.full(len(truth_N), np.nan)
    nats_N[seen_N] = -log_NK[seen_N, truth_N[seen_N]]
    p_NK = np.exp(log_NK)
    entropy_N = -(p_NK * np.where(p_NK > 0, log_NK, 0.0)).sum(-1)
    sure_N = p_NK[np.arange(len(guess_N)), guess_N]
    known_N = np.where(seen_N, truth_N, UNKNOWN)
    return Choices(names, known_N, guess_N, sure_N, nats_N, entropy_N, row_N, place_N, along_N, along)


def places_before_the_end(places: int) -> Callable[[int], Floats]:
    return lambda question: np.arange(places - 1, -1, -1, dtype=np.float64)


def position(places: int) -> NDArray[np.float32]:
    return np.arange(places, dtype=np.float32)


class ReaderParts(NamedTuple):
    reader: Reader

    @property
    def machine(self) -> Machine[Any] | None:
        return self.reader.layers.machine

    @property
    def readers(self) -> dict[str, Machine[Any]]:
        """Where no one machine reads a row from its front: those that each read it their own way."""
        return {} if self.machine is not None else machines_in(self.reader)

    def enter(self, x_NTE: Tensor) -> Tensor:
        return self.reader.admit(x_NTE)

    def read(self, z_NTI: Tensor) -> Tensor:
        return self.reader.read(z_NTI).outputs_BSC

    def encoded(self, y_NTC: Tensor) -> Encoded:
        lengths_N = torch.full((len(y_NTC),), y_NTC.shape[1], device=y_NTC.device)
        return self.reader.encoded(y_NTC, lengths_N)


def machines_in(reader: Reader) -> dict[str, Machine[Any]]:
    """Every machine that reads places and is no part of another, by its path. What reads letters of a word does not."""
    machines: dict[str, Machine[Any]] = {}
    for path, part in reader.layers.named_modules(prefix="reader"):
        if isinstance(part, Machine) and not any(path.startswith(f"{other}.") for other in machines):
            machines[path] = part
    return machines


def seen_order(name: str, places: int) -> Index:
    """Of two directions, one begins at the end."""
    return np.arange(places)[::-1] if seen_backwards(name) else np.arange(places)

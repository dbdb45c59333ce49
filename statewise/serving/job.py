"""What the HTTP side asks of the engine, and what it gets back: jobs in, events out. Neither knows the other.

A job is one text to generate. Its events arrive on the event loop, in order; the last one has a `finish`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from statewise.decoding import Sampling

Reason = Literal["invalid", "not_found", "overloaded", "stopping", "deadline", "failed"]
Finish = Literal["stop", "length", "cancelled", "error"]


class Refused(Exception):
    """Why a job was not done: the HTTP side makes a status and an error object of it."""

    def __init__(self, reason: Reason, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.reason, self.message, self.param, self.code = reason, message, param, code


class Scored(NamedTuple):
    """A token and its probability, from the model's own distribution before any filter, in nats."""

    id: int
    logprob: float | None  # None for the first token of a prompt, which nothing predicts
    top: tuple[tuple[int, float], ...] = ()  # the most likely tokens, best first


class Read(NamedTuple):
    """If the last tokens of a saved state are `last`, it has read the first `length` tokens of the prompt already."""

    last: tuple[int, ...]
    length: int


class Event(NamedTuple):
    """What came of a job since its last event."""

    text: str = ""  # certain text: never half a character, never a part of a stop string
    ids: tuple[int, ...] = ()  # generated tokens, the one that ended the text left out
    scored: tuple[Scored, ...] = ()  # the same tokens with probabilities, if the job asks for them
    prompt: tuple[Scored, ...] = ()  # the prompt's tokens, in the first event of a job with `echo` and `logprobs`
    cached: int = 0  # prompt tokens that were not read again, because their state was known (first event)
    finish: Finish | None = None
    error: Refused | None = None  # with finish "error"
    state: Mapping[str, Any] | None = None  # what `save` kept, in the last event: `StateStore.describe`


class Tokens(NamedTuple):
    """A token each of several jobs, with nothing else to say: cheaper than an event for each."""

    jobs: "list[Job]"
    texts: list[str]
    ids: list[int]


@dataclass(eq=False, slots=True)
class Job:
    """One text to generate with the model that is served as `model`.

    `prompt` are token ids; the engine puts the beginning symbol first, unless it is there, or the prompt is `whole`, or
    `start` is given.
    """

    model: str
    prompt: Sequence[int]
    receive: Callable[[Event], None]  # called on the event loop
    receive_token: Callable[[str, int], None] | None = None  # for a text and its token alone; None: they are an event
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    ignore_end: bool = False  # go on after the end of a document
    logprobs: int | None = None  # how many of the most likely tokens to report; 0: the chosen one alone
    echo: bool = False  # with `logprobs`: score the prompt too
    whole: bool = False
    read: Read | None = None  # with `start`: what of the prompt is left out
    start: str | None = None  # the id of a saved state to continue from
    save: str | None = None  # the id to save the state under, after the last token
    owner: str = ""  # who asks: saved states and cached prefixes of one owner are invisible to others
    deadline: float | None = None  # time.monotonic() at which it is given up

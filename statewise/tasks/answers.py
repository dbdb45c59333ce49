"""What a run answers to held-out data: plain data for a report that shows models side by side."""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

MOST = 60  # answers that are kept of a run


class Answer(NamedTuple):
    """The question, the true answer and the answer of a model. Of a word in a sentence, `asked` is the word."""

    given: str
    asked: str
    truth: str
    answer: str

    @property
    def right(self) -> bool:
        return self.truth == self.answer


class Course(NamedTuple):
    """A stretch of a series: the values before it, the true ones and the forecast ones. None: missing there."""

    name: str
    past: list[float | None]
    truth: list[float | None]
    forecast: list[float | None]


class Sample(NamedTuple):
    """What a language model generates, and how surprised it is by a text it never saw."""

    prompt: str
    sample: list[tuple[str, float]]  # pieces, each with the nats it cost when it was generated
    surprise: list[tuple[str, float]]  # pieces of held-out text, with nats


class Answers(NamedTuple):
    """Each is None where a task has no such answers."""

    rows: list[Answer] | None = None  # to the first held-out rows
    course: Course | None = None
    sample: Sample | None = None


def tokens_per_second(generate: Callable[[], int], device: torch.device) -> float | None:
    """`generate` returns how many tokens it generated; None where there were none."""
    _wait_for(device)
    began = time.perf_counter()
    tokens = generate()
    _wait_for(device)
    return tokens / max(time.perf_counter() - began, 1e-9) if tokens else None


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

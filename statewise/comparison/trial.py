"""One training of one entry: what is run, and what was found. Plain data, so that any engine can carry it."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from statewise.specs import AnyRunSpec
from statewise.tasks import Answer, Course

Phase = Literal["search", "final"]
# Metrics of any run, whatever its task: its costs after as many tokens as the budget says.
COSTS = ("milliseconds_per_token", "state_bytes")
_LEAST = 1e6  # of a trial's cost: who only counts is evaluated too
_PRINTED = {"train": ("lr", "steps", "batch"), "model": ("depth", "width", "order", "smoothing", "window")}
TRAINING_FLOPS = 3  # of a forward pass: each product gives two more on the way back


class Trial(NamedTuple):
    """`key` names its folder: a hash of all that decides its result."""

    entry: str
    seed: int
    phase: Phase
    spec: AnyRunSpec
    key: str
    settings: dict[str, Any]  # as in Found
    flops_per_token: float  # forward, by formula

    @property
    def cost(self) -> float:
        """Relative duration, without a unit: FLOPs per token times steps, plus a constant."""
        return max(self.flops_per_token * self.spec.train.steps, _LEAST)


class Point(NamedTuple):
    """A place on the learning curve: what the validation said, and what it had taken to get there."""

    step: int
    tokens: int
    seconds: float
    flops: float
    figure: float


class Found(NamedTuple):
    """What a trial found. Kept as `result.json` in its folder, written last and whole."""

    key: str
    entry: str
    seed: int
    phase: Phase
    settings: dict[str, Any]  # by path, what is worth printing: searched, solved, and how text is read in training
    figures: dict[str, float]  # of the task's evaluation
    curve: list[Point]
    parameters: int
    flops_per_token: float
    state_bytes: dict[int, int]  # by context length
    steps: int
    seconds: float  # of training, without evaluation
    tokens: int
    tokens_per_second: float
    decode_tokens_per_second: float | None
    peak_bytes: int  # of the process
    sample: list[tuple[str, float]] | None  # what it wrote, in pieces, with the nats each cost it
    surprise: list[tuple[str, float]] | None  # pieces of the same held-out text, with nats
    weights_sha256: str
    seconds_by_context: dict[int, float] | None = None  # to read one more token after so many
    training_bytes: dict[int, int] | None = None  # kept for the backward pass of one row of so many tokens
    path: str | None = None  # how the longest path between two tokens grows with their distance N
    watched: Mapping[str, list[Point]] = MappingProxyType({})  # the other figures of the validation, along training
    prompt: str | None = None  # what the sample goes on from
    answers: list[Answer] | None = None  # to the same held-out rows
    course: Course | None = None
    anchors: Mapping[str, float] = MappingProxyType(
        {}
    )  # the study's metric of what has learned next to nothing, by its name
    model_bytes: int = 0  # all that is needed to predict: parameters, buffers, count tables (0: not measured)


class Failure(NamedTuple):
    """Why a trial has no result. `lasting`: it would fail the same way again, so it is not tried again."""

    key: str
    entry: str
    seed: int
    phase: Phase
    error: str
    lasting: bool


def printed_settings(spec: AnyRunSpec) -> dict[str, Any]:
    """The hyperparameters worth printing beside a result, by path; `state`: whether it is carried along the text."""
    table = spec.model_dump()
    content = {
        f"{inside}.{name}": table[inside][name]
        for inside, names in _PRINTED.items()
        for name in names
        if table[inside].get(name) is not None and (inside != "train" or spec.learns == "gradient")
    }
    if spec.learns == "gradient" and not spec.whole_sequences:
        kind, *length = spec.train.truncation.model_dump().values()
        content |= {"train.window": spec.train.window_tokens(), "train.truncation": ":".join(map(str, [kind, *length]))}
        content["state"] = "carried" if table["data"]["order"] == "sequential" else "fresh"
    return content


def trial_key(spec: AnyRunSpec, *, data: str, code: str) -> str:
    """A function of the spec, the data's fingerprint and the code's version, and not of the folder the data lie in."""
    table = spec.model_dump(mode="json")
    table["data"] = {
        name: [_without_folder(item) for item in value] if isinstance(value, list) else value
        for name, value in table["data"].items()
    }
    content = json.dumps([table, data, code], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:20]


def _without_folder(named: object) -> object:
    return Path(named).name if isinstance(named, str) and Path(named).is_absolute() else named

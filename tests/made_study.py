"""What a study could have found, made up: smooth curves, differences that seeds cannot tell, entries that are slow."""

import hashlib
import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from statewise.comparison.budget import Entry, Held
from statewise.comparison.trial import Found, Phase, Point
from statewise.specs import parse_spec
from statewise.specs.study import BudgetSpec, EntrySpec, SearchSpec, StudySpec

CONTEXTS = (256, 1024, 4096, 16384, 65536)
TEXT = "The cat sat on the mat.\nA dog, seeing it, sat on the log; then both of them looked at the rain. " * 2


_SAID = "said that it was the rain, "


class Made(NamedTuple):
    """One competitor as it will seem to be."""

    name: str
    ends: float  # bits per byte
    speed: float  # tokens a second
    state: int  # bytes
    grows: int = 0  # bytes a token


ENTRIES = (
    Made("markov", 2.61, 910_000, 24),
    Made("elman", 2.48, 42_000, 800),
    Made("lstm", 2.252, 31_000, 1_040),
    Made("gru", 2.25, 33_500, 620),
    Made("transformer", 2.334, 24_000, 8, 1_536),
    Made("ttt_linear", 2.41, 3_100, 18_440),
)
LINEAGE = (
    *ENTRIES,
    *(Made(f"kind_{at}", 2.3 + at * 0.025, 8000 + 2500 * at, 400 * at, 96 * (at % 5 == 0)) for at in range(1, 14)),
)


def study(
    names: Sequence[str], *, seeds: int = 3, title: str = "A made-up lineage", searched: bool = False
) -> StudySpec:
    search = SearchSpec(trials=2, space={"train.rate": (1e-3, 3e-3)}) if searched else SearchSpec()
    return StudySpec(
        title=title,
        question="Which model of text learns most from the same text, with as many parameters?",
        base={"task": "language_model"},
        entry=tuple(EntrySpec(name=name) for name in names),
        seeds=seeds,
        budget=BudgetSpec(kind="parameters", amount=60_000),
        search=search,
    )


def entry(made: Made) -> Entry:
    counted = made.name == "markov"
    spec = parse_spec({"model": {"kind": "lstm", "width": 64}}, source="made up")
    return Entry(
        name=made.name,
        spec=spec,
        solved={} if counted else {"model.width": 64},
        held=() if counted else (Held("parameters", 60_000.0, 60_000 + len(made.name) * 40.0),),
        parameters=0 if counted else 60_000 + len(made.name) * 40,
        flops_per_token=0.0 if counted else 118_000.0,
        state_bytes=made.state,
        data="9f2c" * 16,
    )


def found(made: Made, *, seed: int, phase: Phase = "final", bare: bool = False, rate: float = 1e-3) -> Found:
    """`bare`: of a task that is not a model of text."""
    chance = random.Random(f"{made.name} {seed} {phase}")
    end = made.ends + chance.gauss(0, 0.006) + 0.01 * seed + (0.08 if rate > 2e-3 else 0)
    counted = made.name == "markov"
    parameters = 0 if counted else 60_000 + len(made.name) * 40
    flops = 0.0 if counted else 118_000.0 + 90 * len(made.name)
    steps = [300] if counted else list(range(0, 301, 30))
    curve = [
        Point(
            step=step,
            tokens=step * 1024,
            seconds=step * 1024 / made.speed,
            flops=step * 1024 * 3 * flops,
            figure=end + (8.1 - end) * math.exp(-step / (25 + 400 / made.ends**4)) * (step < 300),
        )
        for step in steps
    ]
    pieces = [(c, abs(chance.gauss(0.2 if c == " " else made.ends * 0.7, 0.9))) for c in TEXT]
    return Found(
        key=hashlib.sha256(f"{made.name} {seed} {phase} {rate}".encode()).hexdigest()[:20],
        entry=made.name,
        seed=seed,
        phase=phase,
        settings={} if counted else {"model.width": 64, "train.rate": rate},
        figures={"bits_per_byte": end, "perplexity": 2**end},
        curve=curve,
        parameters=parameters,
        flops_per_token=flops,
        state_bytes={} if bare else {context: made.state + made.grows * context for context in CONTEXTS},
        steps=300,
        seconds=300 * 1024 / made.speed,
        tokens=300 * 1024,
        tokens_per_second=made.speed * chance.uniform(0.97, 1.03),
        decode_tokens_per_second=None if bare else made.speed**0.5 * 12,
        peak_bytes=int(410e6 + 4e4 * made.state**0.5),
        sample=None if bare else [(c, abs(chance.gauss(1, 0.9))) for c in f"The {made.name} sat and " + _SAID * 6],
        surprise=None if bare else pieces,
        weights_sha256=hashlib.sha256(f"{made.name} {seed}".encode()).hexdigest(),
        seconds_by_context=None if bare else {c: 2e-4 + made.grows * c * 4e-12 + 1e-5 * seed for c in CONTEXTS},
    )


def results(entries: Sequence[Made] = ENTRIES, *, seeds: int = 3) -> list[Found]:
    return [found(made, seed=seed) for made in entries for seed in range(seeds)]

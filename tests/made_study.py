"""Made-up results of studies: smooth curves, ties between models, models that are slow."""

import hashlib
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from statewise.comparison.budget import Entry, Held
from statewise.comparison.report import Part, write_report
from statewise.comparison.report.lineage import FORMS
from statewise.comparison.search import circumstances
from statewise.comparison.trial import Found, Phase, Point
from statewise.figures.figure import Axis, Figure, Grid
from statewise.specs import parse_spec
from statewise.specs.study import BudgetSpec, EntrySpec, SearchSpec, StudySpec, Tried

CONTEXTS = (256, 1024, 4096, 16384, 65536)
TEXT = "The cat sat on the mat.\nA dog, seeing it, sat on the log; then both of them looked at the rain. " * 2


_SAID = "said that it was the rain, "


class Made(NamedTuple):
    """An entry and its made-up results."""

    name: str
    ends: float  # final bits per byte
    speed: float  # tokens per second
    state: int  # bytes
    grows: int = 0  # bytes per token
    kind: str = ""  # of the model; by default its name
    counts: int = 0  # bytes of a count table: it has no parameters and is not size-matched


ENTRIES = (
    Made("markov", 2.61, 910_000, 24, counts=400_000),
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


# As the shipped studies `memory` and `prediction` have it: what the state is decides recall, counts are large.
RECALL = {
    "window": 0.15,
    "elman": 0.16,
    "lstm": 0.47,
    "gru": 0.45,
    "mingru": 0.42,
    "mamba2": 0.97,
    "linear_attention": 0.99,
    "gated_delta": 0.995,
    "ttt_linear": 0.99,
    "transformer": 0.998,
}
PREDICTION = (
    *(
        Made(f"markov {order}", ends, 900_000, 8 * order, kind="markov", counts=counts)
        for order, ends, counts in ((1, 3.35, 9_000), (2, 2.75, 90_000), (4, 2.02, 1_400_000), (7, 1.63, 9_057_656))
    ),
    Made("elman", 2.21, 42_000, 800),
    Made("lstm", 1.952, 31_000, 1_040),
    Made("window", 2.38, 120_000, 1_792),
    Made("gru", 1.95, 33_500, 620),
    Made("transformer", 2.034, 24_000, 8, 1_536),
    Made("mamba2", 1.90, 14_000, 9_216),
    Made("ttt_linear", 1.97, 3_100, 18_440),
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
    kind = made.kind or made.name
    model = {"kind": kind if kind in FORMS else "lstm", **({} if kind == "markov" else {"width": 64})}
    return Entry(
        name=made.name,
        spec=parse_spec({"model": model}, source="made up"),
        solved={} if made.counts else {"model.width": 64},
        held=() if made.counts else (Held("parameters", 60_000.0, 60_000 + len(made.name) * 40.0),),
        parameters=0 if made.counts else 60_000 + len(made.name) * 40,
        flops_per_token=0.0 if made.counts else 118_000.0,
        state_bytes=made.state,
        data="9f2c" * 16,
    )


def found(made: Made, *, seed: int, phase: Phase = "final", bare: bool = False, rate: float = 1e-3) -> Found:
    """`bare`: of a task without text."""
    chance = random.Random(f"{made.name} {seed} {phase}")
    end = made.ends + chance.gauss(0, 0.006) + 0.01 * seed + (0.08 if rate > 2e-3 else 0)
    counted = bool(made.counts)
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
        model_bytes=made.counts or 4 * parameters,
    )


def results(entries: Sequence[Made] = ENTRIES, *, seeds: int = 3) -> list[Found]:
    return [found(made, seed=seed) for made in entries for seed in range(seeds)]


def memory(folder: Path, *, seeds: int = 3) -> Part:
    """Recall at a distance: shares of right answers by kind of state."""
    sizes = {made.name: made for made in LINEAGE}
    rows = [sizes.get(name, Made(name, 0.0, 9_000, 16_384))._replace(ends=score) for name, score in RECALL.items()]
    runs = []
    for made in rows:
        for seed in range(seeds):
            one = found(made, seed=seed, bare=True)
            share = min(made.ends + 0.004 * seed, 1.0)
            curve = [point._replace(figure=share * (1 - math.exp(-point.step / 90))) for point in one.curve]
            states = {context: made.state + made.grows * context for context in (26, 1024, 16384)}
            more: dict[str, Any] = {"curve": curve, "state_bytes": states, "anchors": {"most frequent class": 0.0625}}
            runs.append(one._replace(figures={"accuracy": share}, **more))
    asked = study([made.name for made in rows], seeds=seeds, title="Recall at a distance")
    asked = asked.model_copy(update={"metric": "accuracy", "better": "higher", "question": "What is remembered?"})
    return Part("memory", asked, [entry(made) for made in rows], runs, (), folder)


def prediction(folder: Path, *, seeds: int = 2) -> Part:
    """A text: bits per byte, with count models of four orders beside models of one size."""
    rates = (2e-3, 8e-3, 3.2e-2)
    trained = [made for made in PREDICTION if not made.counts]
    record = tuple(
        Tried(entry=made.name, settings={"train.lr": rate}, metric=made.ends + abs(math.log(rate / 8e-3)) / 9)
        for made in trained
        for rate in rates
    )
    asked = study([made.name for made in PREDICTION], seeds=seeds, title="Prediction")
    entries = [entry(made) for made in PREDICTION]
    searched = circumstances(asked, entries)
    longer = {**searched, "base": {**searched["base"], "train.steps": 700}}
    asked = asked.model_copy(update={"record": record, "record_of": longer})
    more: dict[str, Any] = {"anchors": {"token frequencies": 4.4}, "prompt": "The cat "}
    runs = [one._replace(**more) for one in results(PREDICTION, seeds=seeds)]
    return Part("prediction", asked, entries, runs, (), folder)


def look() -> Figure:
    """Where two models look: a map, as a lens draws it."""
    rows = tuple(tuple(1.0 / (1 + abs(a - b)) for a in range(24)) for b in range(6))
    axes = Axis("distance (tokens)"), Axis("", categories=("gru", "lstm", "mamba2", "window", "elman", "transformer"))
    grid = Grid(rows, "share of the gradient", x=tuple(range(24)))
    return Figure(
        "look", "How far back the answer comes from", "map", *axes, (), "Darker: more.", "Made up.", grid=grid
    )


def write(part: Part, *, folder: Path, static: bool = True, command: str | None = None, **more: Any) -> Path:
    """The report of one study."""
    title, question = part.study.title, part.study.question
    return write_report([part], title=title, question=question, folder=folder, static=static, command=command, **more)


def write_lineage(folder: Path, *, static: bool = False) -> Path:
    """A report of two studies and a look inside."""
    return write_report(
        [memory(folder), prediction(folder)],
        title="The lineage",
        question="What should a model remember, and what does it cost?",
        folder=folder,
        static=static,
        look=look(),
    )

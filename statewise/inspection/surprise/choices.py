"""Surprisal of classifications: by answer and class, with calibration.

N answers.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from statewise.display import Format, alone, plain, rough, share, visible, whole
from statewise.figures import Axis, Column, Drawing, Figure, Passage, Series, Table, table_of
from statewise.inspection.finding import Finding, Named
from statewise.inspection.surprise.measure import Rival, Tally, reliability
from statewise.tasks import UNKNOWN, Choices, Floats, Specimens, Words

LEVELS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0)  # nats: where a deeper colour begins
_SHOWN = 300  # answers that are shown in their text by default: each row is a line
_BARS = 16  # classes that a figure has room for
_ALONG = 8  # points of a curve
_LONGEST = 160  # letters of a cell

NumberedColumn: TypeAlias = tuple[Column, Callable[[int], str], Format | None]  # of answers, or rows, by their number


class ClassCost(NamedTuple):
    name: str
    answers: int
    nats: float
    recall: float
    mistaken_for: str  # the class it is mistaken for most often; "": it never is


class Along(NamedTuple):
    """A mean over neighbouring answers."""

    middle: float
    mean: float
    half: float
    answers: int


def found_in_choices(
    name: str, specimens: Specimens, answers: Choices, rival: Rival | None, *, shown: int | None, worst: int
) -> Finding:
    told_N = answers.truth_N != UNKNOWN
    figures: list[Drawing] = []
    tables: list[Named] = []
    unit = specimens.words.question
    data: dict[str, Any] = {"answers": len(answers.guess_N), "told": int(told_N.sum())}
    missing: list[str] = []
    if told_N.any():
        tally = Tally()
        right_N = (answers.guess_N == answers.truth_N)[told_N].astype(np.float64)
        tally.add(torch.from_numpy(answers.sure_N[told_N]), torch.from_numpy(right_N))
        costs = class_costs(answers)
        along = buckets(answers.along_N[told_N], answers.nats_N[told_N])
        shown = _SHOWN if shown is None else shown
        figures += [*_passage(specimens, answers, shown), *_along(along, answers.along)]
        if len(answers.guess_N) > shown and not (answers.place_N == UNKNOWN).any():
            missing.append(f"The first {shown:,} {unit}s are shown; the numbers are of all {len(answers.guess_N):,}.")
        figures += [
            reliability(tally.bins(), tally.error(), of=f"{unit.capitalize()}s"),
            _classes(costs, specimens.words),
        ]
        tables += [_worst(specimens, answers, worst), _class_table(costs, specimens.words)]
        mean, entropy = float(np.nanmean(answers.nats_N)), float(answers.entropy_N[told_N].mean())
        data |= {
            "nats": mean,
            "expected_nats": entropy,
            "accuracy": tally.accuracy,
            "calibration_error": tally.error(),
            "bins": [bucket._asdict() for bucket in tally.bins()],
            "classes": [cost._asdict() for cost in costs],
            "along": [stretch._asdict() for stretch in along],
        }
        sentences = [
            f"{name} has a mean loss of {plain(mean)} nats a {unit} on {specimens.source} "
            f"({int(told_N.sum()):,} {unit}s) and a mean entropy of {plain(entropy)}; it is right "
            f"{share(tally.accuracy)} of the time, with a calibration error of {share(tally.error())}.",
            _hardest(costs, specimens.words),
        ]
        unseen = len(told_N) - int(told_N.sum())
        if unseen and specimens.has_truth:
            missing.append(f"{unseen:,} {unit}s have a label that is not in the training data: they have no loss.")
    else:
        tables.append(_said(specimens, answers, worst))
        sentences = [_answers(answers, unit)]
        missing.append(f"The right answers are not known, so there is neither a loss nor a calibration of {unit}s.")
    if rival is not None and told_N.any():
        sentences.insert(0, rival.sentence(name, f"nats a {rival.of or unit}"))
        data["against"] = rival.as_dict()
        tables.insert(0, _rivals(specimens, answers, rival, name, worst))
    return Finding("surprise", "Surprise", name, tuple(sentences), tuple(figures), tuple(tables), data, tuple(missing))


def class_costs(answers: Choices) -> list[ClassCost]:
    """Of every class that occurs, the one with the highest loss first."""
    order_N = np.argsort(answers.truth_N, kind="stable")
    which, begin = np.unique(answers.truth_N[order_N], return_index=True)
    made = []
    for truth, mine_M in zip(which.tolist(), np.split(order_N, begin[1:])):
        if truth == UNKNOWN:
            continue
        guess_M = answers.guess_N[mine_M]
        wrong = guess_M[guess_M != truth]
        other = answers.names[int(np.bincount(wrong).argmax())] if len(wrong) else ""
        recall = float((guess_M == truth).mean())
        made.append(ClassCost(answers.names[truth], len(mine_M), float(answers.nats_N[mine_M].mean()), recall, other))
    return sorted(made, key=lambda cost: -cost.nats)


def buckets(along_N: Floats, nats_N: Floats, *, most: int = _ALONG) -> list[Along]:
    """Answers in groups of about equal size along a value; equal values stay together."""
    edges = np.unique(np.quantile(along_N, np.linspace(0, 1, most + 1)))
    group_N = np.clip(np.searchsorted(edges, along_N, side="right") - 1, 0, max(len(edges) - 2, 0))
    made = []
    for group in np.unique(group_N):
        some = nats_N[group_N == group]
        half = 1.96 * float(some.std(ddof=1)) / len(some) ** 0.5 if len(some) > 1 else 0.0
        made.append(Along(float(along_N[group_N == group].mean()), float(some.mean()), half, len(some)))
    return made


def _hardest(costs: Sequence[ClassCost], spoken: Words) -> str:
    first, last = costs[0], costs[-1]
    if len(costs) == 1:
        return f"Only {first.name!r} occurs here."
    mistaken = f", and is most often mistaken for {first.mistaken_for!r}" if first.mistaken_for else ""
    return (
        f"Of {len(costs)} {spoken.labels}, {first.name!r} is the hardest with {plain(first.nats)} nats{mistaken}; "
        f"{last.name!r} is the easiest with {plain(last.nats)}."
    )


def _along(along: Sequence[Along], label: str) -> list[Drawing]:
    if len(along) < 2:
        return []
    least, most = min(along, key=lambda stretch: stretch.mean), max(along, key=lambda stretch: stretch.mean)
    chance = most.mean - least.mean <= float(np.hypot(least.half, most.half))
    return [
        Figure(
            "surprise-along",
            "Loss by position",
            "line",
            Axis(label),
            Axis("nats an answer"),
            (Series.with_band("mean", *zip(*((stretch.middle, stretch.mean, stretch.half) for stretch in along))),),
            reading="Answers in groups of about equal size; the band is a 95 % interval of the mean.",
            finding=f"The loss is highest with {rough(most.middle)} {label}, {plain(most.mean)} nats, and lowest with "
            f"{rough(least.middle)}, {plain(least.mean)}{': not a significant difference' if chance else ''}.",
        )
    ]


def _classes(costs: Sequence[ClassCost], spoken: Words) -> Figure:
    shown = costs[:_BARS]
    left = len(costs) - len(shown)
    wrong = min(costs, key=lambda cost: cost.recall)
    return Figure(
        "surprise-classes",
        f"Loss by {spoken.label}",
        "bars",
        Axis("nats an answer"),
        Axis("", "category", categories=tuple(part.name for part in shown)),
        (Series("mean", tuple(part.nats for part in shown), tuple(float(at) for at in range(len(shown)))),),
        reading="Mean loss of an answer, by its true label.",
        finding=f"{wrong.name!r} has the lowest recall: {share(wrong.recall)} of {wrong.answers:,}.",
        missing=(f"{left} {spoken.labels} with a lower loss are in the table only",) if left else (),
    )


def _passage(specimens: Specimens, answers: Choices, most: int) -> list[Drawing]:
    """Answers at places of a text are shown there."""
    if (answers.place_N == UNKNOWN).any():
        return []
    order = np.lexsort((answers.place_N, answers.row_N))
    pieces: list[tuple[str, float | None]] = []
    notes = []
    row = None
    made: tuple[str, ...] = ()
    spoken, between = specimens.words, " " if specimens.words.spaced else ""
    for at in order[:most]:
        if answers.row_N[at] != row:
            if row is not None:
                pieces.append(("\n", None))
                notes.append("")
            row = int(answers.row_N[at])
            made = specimens.at(row).pieces
            if spoken.writes:  # what was read before the first of them
                before = made[: int(answers.place_N[at]) + 1]
                pieces.append((f"{between.join(before)} ", None))
                notes.append("")
        cost, truth = float(answers.nats_N[at]), int(answers.truth_N[at])
        if spoken.writes:
            pieces.append((f"{answers.names[int(answers.known_N[at])]}{between}", None if np.isnan(cost) else cost))
            notes.append(f"expected {answers.names[int(answers.guess_N[at])]}")
            continue
        pieces.append((f"{made[int(answers.place_N[at])]} ", None if np.isnan(cost) else cost))
        told = f", the truth is {answers.names[truth]}" if truth != UNKNOWN else ""
        notes.append(f"predicted {answers.names[int(answers.guess_N[at])]}{told}")
    worst = max(range(len(pieces)), key=lambda at: pieces[at][1] or 0.0)
    return [
        Passage(
            "surprise-text",
            "Surprisal by answer",
            tuple(pieces),
            "nats",
            reading="Darker: lower probability of the right answer.",
            finding=f"Of what is shown, {alone(pieces[worst][0].strip())!r} cost most, with "
            f"{plain(pieces[worst][1] or 0.0)} nats: {notes[worst]}.",
            bounds=LEVELS,
            notes=tuple(notes),
        )
    ]


def _questions(specimens: Specimens, answers: Choices) -> list[NumberedColumn]:
    """What was asked, of an answer by its number."""

    def truth(at: int) -> str:
        number = int(answers.truth_N[at])
        return "–" if number == UNKNOWN else answers.names[number]

    def before(at: int) -> str:
        return visible(specimens.shown(answers, at)[0])

    return [
        (Column("before", "where, or the text before", text=True), before, None),
        (Column("it", "question", text=True), lambda at: _short(visible(specimens.shown(answers, at)[1])), None),
        (Column("truth", "truth", text=True), truth, None),
    ]


def _table(specimens: Specimens, answers: Choices, numbers: Iterable[int]) -> Table:
    def loss(at: int) -> float | None:
        return None if np.isnan(answers.nats_N[at]) else float(answers.nats_N[at])

    return table_of(
        numbers,
        *_questions(specimens, answers),
        (Column("guess", "guess", text=True), lambda at: answers.names[int(answers.guess_N[at])], None),
        (Column("sure", "confidence"), lambda at: float(answers.sure_N[at]), share),
        (Column("nats", "loss", "nats"), loss, plain),
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _worst(specimens: Specimens, answers: Choices, most: int) -> Named:
    order = np.argsort(-np.nan_to_num(answers.nats_N, nan=-np.inf))[:most].tolist()
    table = _table(specimens, answers, order)
    return Named("surprise-worst", "The most surprising answers", "Answers in the order of their loss.", table)


def _said(specimens: Specimens, answers: Choices, most: int) -> Named:
    table = _table(specimens, answers, range(min(most, len(answers.guess_N))))
    return Named("surprise-answers", "The answers", "In the order of the text.", table)


def _answers(answers: Choices, unit: str) -> str:
    most, least = (answers.names[int(answers.guess_N[at])] for at in (answers.sure_N.argmax(), answers.sure_N.argmin()))
    count = len(answers.guess_N)
    return (
        f"The right answers are not known; the model is most confident of {most!r} "
        f"({share(float(answers.sure_N.max()))}) and least confident of {least!r} "
        f"({share(float(answers.sure_N.min()))}) among {count:,} {unit}{'s' * (count != 1)}."
    )


def _class_table(costs: Sequence[ClassCost], spoken: Words) -> Named:
    table = table_of(
        costs,
        (Column("class", spoken.label, text=True), lambda cost: cost.name, None),
        (Column("answers", "answers"), lambda cost: cost.answers, whole),
        (Column("nats", "loss", "nats"), lambda cost: cost.nats, plain),
        (Column("recall", "recall"), lambda cost: cost.recall, share),
        (Column("mistaken_for", "most often mistaken for", text=True), lambda cost: cost.mistaken_for or "–", None),
    )
    return Named("surprise-by-class", f"The {spoken.labels}", "The hardest first.", table)


def _rivals(specimens: Specimens, answers: Choices, rival: Rival, name: str, most: int) -> Named:
    """For two runs with the same answers; or with the same rows alone."""
    gap_P = np.nan_to_num(rival.mine_N - rival.theirs_N)
    between = " " if specimens.words.spaced else ""
    rows: list[NumberedColumn] = [
        (Column("where", "where", text=True), lambda at: specimens.at(at).name, None),
        (Column("row", "the row", text=True), lambda at: _short(visible(between.join(specimens.at(at).pieces))), None),
    ]
    table = table_of(
        np.argsort(-np.abs(gap_P))[:most].tolist(),
        *(rows if rival.of else _questions(specimens, answers)),
        (Column("first", name, "nats"), lambda at: float(rival.mine_N[at]), plain),
        (Column("second", rival.name, "nats"), lambda at: float(rival.theirs_N[at]), plain),
        (Column("gap", "gap", "nats"), lambda at: float(gap_P[at]), plain),
    )
    reading = f"The largest gaps first; above 0, {rival.name} has the lower loss{' on the row' if rival.of else ''}."
    return Named("surprise-disagreements", "The largest differences", reading, table)

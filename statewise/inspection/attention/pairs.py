"""Alignments: of what is written after something was read, where each token looked, and whether that is right.

T target, S source.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch
from torch import Tensor

from statewise.data import END
from statewise.display import alone, plain, rough, share
from statewise.figures import Axis, Cell, Column, Drawing, Figure, Grid, Table, number, words
from statewise.inspection.attention.alignment import Agreement, Known, agreement, gold, known, slope
from statewise.inspection.attention.heads import chosen_queries, refuse_unknown
from statewise.inspection.attention.rows import describe_rows, see_row
from statewise.inspection.attention.settings import AttentionSettings
from statewise.inspection.attention.weights import Head, entropy, look_along
from statewise.inspection.finding import Finding, Named
from statewise.inspection.progress import Progress
from statewise.inspection.subject import Subject
from statewise.tasks import Specimen, Specimens

_TITLE = "Alignment"


class Pair(NamedTuple):
    """A source and what was written for it, token by token, with the weights between them."""

    source: tuple[str, ...]  # the end symbol last
    target: tuple[str, ...]
    weights_TS: Tensor  # the mean over layers and heads, or over those that were asked for
    entropies: dict[str, list[float]]  # by layer, of each head
    kind: Known | None
    agreement: Agreement | None

    @property
    def slope(self) -> float:
        return slope(self.weights_TS)


def look_at_pairs(subject: Subject, specimens: Specimens, settings: AttentionSettings, progress: Progress) -> Finding:
    looks = specimens.at(0).looks
    pattern = None if looks is None else re.sub(r"\d+", "*", looks)  # the same look in every layer
    within = _within([specimens.at(at) for at in range(min(settings.rows, len(specimens)))], pattern)
    tables = [_heads_within(within)] if within else []
    if pattern is None:
        said = f"{subject.name} has no look of its own at its source: what reaches its target is in the state."
        return Finding("attention", _TITLE, subject.name, (said,), tables=tuple(tables), data={"pairs": []})
    pairs = [
        _pair(specimens.at(at), pattern, settings)
        for at in progress.over(range(min(settings.judged, len(specimens))), "aligning")
    ]
    figures: list[Drawing] = [
        _map(at, one, settings, told=specimens.told) for at, one in enumerate(pairs[: settings.pairs])
    ]
    judged = [one for one in pairs if one.agreement is not None]
    return Finding(
        "attention",
        _TITLE,
        subject.name,
        tuple(_sentences(subject.name, pairs, judged)),
        tuple(figures),
        (_table(pairs), _heads(pairs), *tables),
        {
            "pairs": [
                {
                    "source": one.source,
                    "target": one.target,
                    "slope": one.slope,
                    "kind": one.kind,
                    "agreement": None if one.agreement is None else one.agreement._asdict(),
                    "weights": one.weights_TS.tolist() if at < settings.pairs else None,
                }
                for at, one in enumerate(pairs)
            ]
        },
        missing=_unshown(len(pairs), len(specimens), settings),
    )


def _unshown(pairs: int, all_: int, settings: AttentionSettings) -> tuple[str, ...]:
    missing = []
    if pairs < all_:
        missing.append(f"The first {pairs:,} of {all_:,} pairs were aligned; the setting judged aligns more.")
    if pairs > settings.pairs:
        missing.append(f"{settings.pairs} of {pairs:,} alignments are drawn; the numbers are of all.")
    return tuple(missing)


def _pair(one: Specimen, pattern: str, settings: AttentionSettings) -> Pair:
    assert one.machine is not None
    with torch.no_grad():
        z_1TI = one.enter(one.x_TE[None])
        state = one.begun(z_1TI)
    look = look_along(one.machine, state, z_1TI[0, one.first :], pattern=pattern)
    source, target = one.pieces[: one.first], one.questions
    most = max(one_THS.shape[1] for one_THS in look.weights.values())
    refuse_unknown(settings, layers=range(len(look.weights)), heads=range(most))
    weights_TS = look.mean(layers=settings.layers, heads=settings.heads).double().cpu()
    written = target[:-1] if target[-1] == END else target  # one that was cut has no end
    kind = known([piece for piece in source if piece != END], written)
    right = None if kind is None or not written else agreement(weights_TS, gold(kind, len(written)))
    entropies = {name: entropy(one_THS.double()).mean(0).tolist() for name, one_THS in look.weights.items()}
    return Pair(source, target, weights_TS, entropies, kind, right)


def _within(rows: Sequence[Specimen], pattern: str | None) -> dict[str, list[Head]]:
    """Heads that look at the text that they stand in, by the name of their layer."""
    seen = [see_row(one).weights for one in rows]
    names = [name for name in seen[0] if pattern is None or not fnmatchcase(name, pattern)]
    return {
        name: describe_rows(layer, [weights[name] for weights in seen if name in weights])
        for layer, name in enumerate(names)
    }


def _heads_within(within: dict[str, list[Head]]) -> Named:
    columns = (
        Column("layer", "layer", text=True),
        Column("head", "head"),
        Column("entropy", "entropy", "bits"),
        Column("share", "of the largest", "0: a choice, 1: a mean"),
        Column("distance", "looks away", "tokens, in the mean"),
        Column("itself", "on itself"),
    )
    rows = tuple(
        (
            words(name),
            number(one.head, lambda value: f"{value:.0f}"),
            number(one.entropy, plain),
            number(one.share, share),
            number(one.distance, rough),
            number(one.itself, share),
        )
        for name, heads in within.items()
        for one in heads
    )
    reading = (
        "Means over the tokens of several pairs: heads of the source look at the source, others at what is written."
    )
    return Named("attention-within", "The heads that look at their own text", reading, Table(columns, rows))


def _averaged(settings: AttentionSettings) -> str:
    """Whose mean a map is."""
    some = [
        f"{name[:-1] if len(wanted) == 1 else name} {', '.join(map(str, wanted))}"
        for name, wanted in (("layers", settings.layers), ("heads", settings.heads))
        if wanted
    ]
    return f"by {' and '.join(some)}" if some else "in the mean over layers and heads"


def _map(at: int, one: Pair, settings: AttentionSettings, *, told: bool) -> Figure:
    queries = chosen_queries(settings.queries, len(one.target), of=f"the target of pair {at + 1}")
    way = "forward" if one.slope > 0.5 else "backward" if one.slope < -0.5 else "in no one direction"
    right = ""
    if one.agreement is not None:
        right = f"; the target is a {one.kind}, and {one.agreement.right} of {one.agreement.tokens} tokens look right"
    return Figure(
        f"attention-pair-{at}",
        f"Pair {at + 1}: {' '.join(one.source[:6])[:48]}",
        "map",
        Axis("source", categories=tuple(f"{place} {alone(name)}" for place, name in enumerate(one.source))),
        Axis(
            "target, as told" if told else "target",
            categories=tuple(f"{place} {alone(one.target[place])}" for place in queries),
        ),
        (),
        reading="A row is a token of the target; the colour is how much it looked at each token of the source, "
        f"{_averaged(settings)}.",
        finding=f"The alignment runs {way} (correlation {plain(one.slope)}){right}.",
        grid=Grid(
            tuple(map(tuple, one.weights_TS[queries].tolist())),
            "weight",
            limits=(0.0, float(one.weights_TS[queries].max()) or 1.0),
        ),
    )


def _sentences(name: str, pairs: list[Pair], judged: list[Pair]) -> list[str]:
    forward = sum(one.slope > 0.5 for one in pairs)
    backward = sum(one.slope < -0.5 for one in pairs)
    said = [
        f"Of {len(pairs)} alignments of {name}, {forward} {'runs' if forward == 1 else 'run'} forward, {backward} "
        f"backward, and {len(pairs) - forward - backward} in no one direction."
    ]
    if judged:
        right = sum(one.agreement.right for one in judged if one.agreement is not None)
        near = sum(one.agreement.near for one in judged if one.agreement is not None)
        tokens = sum(one.agreement.tokens for one in judged if one.agreement is not None)
        weight = sum(one.agreement.weight * one.agreement.tokens for one in judged if one.agreement is not None)
        said.append(
            f"{len(judged)} of the targets are a copy or a reversal, so that the right alignment is known: "
            f"{share(right / tokens)} of their tokens look most at the right place, {share(near / tokens)} at it or "
            f"beside it; it gets {share(weight / tokens)} of the weight."
        )
    return said


def _table(pairs: list[Pair]) -> Named:
    columns = (
        Column("source", "source", text=True),
        Column("target", "target", text=True),
        Column("slope", "direction", "1 forward, −1 backward"),
        Column("right", "right", "of known alignments"),
        Column("weight", "weight", "on the right place"),
    )
    rows = []
    for one in pairs:
        right = None if one.agreement is None else one.agreement.right / one.agreement.tokens
        weight = None if one.agreement is None else one.agreement.weight
        rows.append(
            (
                words(" ".join(one.source[:-1])),
                words(" ".join(one.target[:-1])),
                Cell(one.slope, plain(one.slope)),
                Cell(right, "–" if right is None else share(right)),
                Cell(weight, "–" if weight is None else share(weight)),
            )
        )
    return Named("attention-pairs", "The pairs", "One row a pair.", Table(columns, tuple(rows)))


def _heads(pairs: list[Pair]) -> Named:
    """Entropy of each head, in the mean over pairs."""
    rows = []
    for name in pairs[0].entropies:
        for head in range(len(pairs[0].entropies[name])):
            mean = sum(one.entropies[name][head] for one in pairs) / len(pairs)
            rows.append((words(name), Cell(head, str(head)), Cell(mean, plain(mean))))
    columns = (Column("layer", "layer", text=True), Column("head", "head"), Column("entropy", "entropy", "bits"))
    reading = "Mean entropy of the weights over the source: 0 is a choice of one token."
    return Named("attention-heads", "The heads that look at the source", reading, Table(columns, tuple(rows)))

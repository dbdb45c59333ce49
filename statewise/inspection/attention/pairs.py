"""Alignments of a translator: where in the source each written token looked, and whether that is right.

T target, S source.
"""

import re
from typing import Any, NamedTuple

import torch
from torch import Tensor

from statewise.data import Tokenizer
from statewise.data.vocabulary import END
from statewise.figures.drawing import Drawing
from statewise.figures.figure import Axis, Figure, Grid
from statewise.figures.number import plain, share
from statewise.figures.passage import visible
from statewise.figures.table import Cell, Column, Table, words
from statewise.inspection.attention.alignment import Agreement, Known, agreement, gold, known, slope
from statewise.inspection.attention.settings import AttentionSettings
from statewise.inspection.attention.weights import entropy, look_along
from statewise.inspection.finding import Finding, Named
from statewise.inspection.progress import Progress
from statewise.models import ConditionalMachine
from statewise.specs import UserError
from statewise.tasks.translation import TranslationRun
from statewise.tasks.translation.examples import read_split

_TITLE = "Alignment"


class Pair(NamedTuple):
    """A source and what was written for it, token by token, with the weights between them."""

    source: tuple[str, ...]  # the end symbol last
    target: tuple[str, ...]
    weights_TS: Tensor  # the mean over layers and heads
    entropies: dict[str, list[float]]  # by layer, of each head
    told: bool  # whether the target was given, or the model's own
    kind: Known | None
    agreement: Agreement | None

    @property
    def slope(self) -> float:
        return slope(self.weights_TS)


def look_at_pairs(run: TranslationRun, text: str | None, settings: AttentionSettings, progress: Progress) -> Finding:
    model = run.model
    looks = model.looks if isinstance(model, ConditionalMachine) else None
    if not isinstance(model, ConditionalMachine) or looks is None:
        said = f"{run.path} has no look of its own at its source: what reaches its target is in the state."
        return Finding("attention", _TITLE, str(run.path), (said,), data={"pairs": []})
    pattern = re.sub(r"\d+", "*", looks)  # the same look in every layer
    pairs = [
        _pair(run, model, source, target, pattern)
        for source, target in progress.over(_given(run, text, settings.judged), "aligning")
    ]
    figures: list[Drawing] = [_map(number, one) for number, one in enumerate(pairs[: settings.pairs])]
    judged = [one for one in pairs if one.agreement is not None]
    return Finding(
        "attention",
        _TITLE,
        str(run.path),
        tuple(_sentences(str(run.path), pairs, judged)),
        tuple(figures),
        (_table(pairs), _heads(pairs)),
        {
            "pairs": [
                {
                    "source": one.source,
                    "target": one.target,
                    "slope": one.slope,
                    "kind": one.kind,
                    "agreement": None if one.agreement is None else one.agreement._asdict(),
                    "weights": one.weights_TS.tolist() if number < settings.pairs else None,
                }
                for number, one in enumerate(pairs)
            ]
        },
        missing=_unshown(len(pairs), settings.pairs),
    )


def _unshown(pairs: int, shown: int) -> tuple[str, ...]:
    return (f"{shown} of {pairs} alignments are drawn; the numbers are of all.",) if pairs > shown else ()


def _given(run: TranslationRun, text: str | None, most: int) -> list[tuple[str, str | None]]:
    """Lines of a text, each a source or a source and its target with a tab between; else pairs that were held out."""
    if text is None:
        held = read_split(run.spec.data, seed=run.spec.seed)[1]
        return list(zip(held.sources[:most], held.targets[:most]))
    found: list[tuple[str, str | None]] = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split("\t")
        if len(parts) > 2:
            raise UserError(
                f"line {number} of the text has {len(parts) - 1} tabs: {line[:60]!r}",
                fix="write a source, or a source, a tab and its target",
            )
        if line.strip():
            found.append((parts[0], parts[1] if len(parts) == 2 else None))
    return found[:most]


def _pair(run: TranslationRun, model: ConditionalMachine[Any], source: str, target: str | None, pattern: str) -> Pair:
    languages, device = run.languages, run.device
    written = run.translate(source) if target is None else target
    source_S = torch.as_tensor(languages.encode_sources([source])[0], device=device)
    ids = [int(one) for one in languages.target.encode(written)]
    with torch.no_grad():
        state = model.condition(source_S[None], torch.tensor([len(source_S)], device=device))
    tokens_T = torch.tensor([languages.target.end_id, *ids], device=device)
    look = look_along(model, state, tokens_T, pattern=pattern)
    names = _spelled(languages.source, source_S.tolist())
    wrote = (*_spelled(languages.target, ids), END)
    weights_TS = look.mean().double().cpu()
    kind = known([name for name in names if name != END], wrote[:-1]) if target is not None else None
    right = None if kind is None else agreement(weights_TS, gold(kind, len(ids)))
    entropies = {name: entropy(one_THS.double()).mean(0).tolist() for name, one_THS in look.weights.items()}
    return Pair(names, wrote, weights_TS, entropies, target is not None, kind, right)


def _spelled(tokenizer: Tokenizer, ids: list[int]) -> tuple[str, ...]:
    return tuple(END if one == tokenizer.end_id else tokenizer.decode([one]) for one in ids)


def _map(number: int, one: Pair) -> Figure:
    way = "forward" if one.slope > 0.5 else "backward" if one.slope < -0.5 else "in no one direction"
    right = ""
    if one.agreement is not None:
        right = f"; the target is a {one.kind}, and {one.agreement.right} of {one.agreement.tokens} tokens look right"
    return Figure(
        f"attention-pair-{number}",
        f"Pair {number + 1}: {' '.join(one.source[:6])[:48]}",
        "map",
        Axis("source", categories=tuple(f"{at} {visible(name)}" for at, name in enumerate(one.source))),
        Axis(
            "target, as told" if one.told else "target, as written",
            categories=tuple(f"{at} {visible(name)}" for at, name in enumerate(one.target)),
        ),
        (),
        reading="A row is a token of the target; the colour is how much it looked at each token of the source, in the "
        "mean over layers and heads.",
        finding=f"The alignment runs {way} (correlation {plain(one.slope)}){right}.",
        grid=Grid(
            tuple(map(tuple, one.weights_TS.tolist())), "weight", limits=(0.0, float(one.weights_TS.max()) or 1.0)
        ),
    )


def _sentences(name: str, pairs: list[Pair], judged: list[Pair]) -> list[str]:
    forward = sum(one.slope > 0.5 for one in pairs)
    backward = sum(one.slope < -0.5 for one in pairs)
    said = [f"Of {len(pairs)} alignments of {name}, {forward} run forward and {backward} backward."]
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

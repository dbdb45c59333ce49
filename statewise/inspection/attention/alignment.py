"""Alignments of an encoder-decoder: where each target token attends in the source, and whether that is right.

T target, S source.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from statewise.data import END
from statewise.display import Progress, alone, plain, rough, share, whole
from statewise.figures import Axis, Column, Drawing, Figure, Grid, table_of
from statewise.inspection.attention.weights import (
    Head,
    cross_weights,
    describe,
    entropy,
    refuse_unknown,
    see_row,
    valid_queries,
)
from statewise.inspection.finding import Finding, Named
from statewise.inspection.subject import Subject
from statewise.tasks import Specimen, Specimens

Known = Literal["copy", "reversal"]


class Agreement(NamedTuple):
    right: int  # tokens whose largest weight is at the right place
    near: int  # or at a neighbour: an encoder's output at a place also depends on its neighbours
    tokens: int
    weight: float  # mean weight on the right place


def known(source: Sequence[str], target: Sequence[str]) -> Known | None:
    """Whether a target is a copy or the reversal of its source; a palindrome counts as a copy."""
    if list(source) == list(target):
        return "copy"
    if list(source)[::-1] == list(target):
        return "reversal"
    return None


def gold(kind: Known, length: int) -> list[int]:
    """For each token of the target, its place in the source."""
    return list(range(length)) if kind == "copy" else list(range(length))[::-1]


def agreement(weights_TS: Tensor, places: Sequence[int]) -> Agreement:
    rows_T = weights_TS[: len(places)]
    gold_T = torch.tensor(places)
    off_T = (rows_T.argmax(-1) - gold_T).abs()
    right, near = int((off_T == 0).sum()), int((off_T <= 1).sum())
    return Agreement(right, near, len(places), float(rows_T[torch.arange(len(places)), gold_T].mean()))


def slope(weights_TS: Tensor) -> float:
    """Correlation of a token's place with the mean place it attends to: 1 runs forward, -1 backward."""
    weights_TS = weights_TS.double()
    time, places = weights_TS.shape
    if time < 2 or places < 2:
        return 0.0
    t_T = torch.arange(time, dtype=torch.float64)
    mean_T = weights_TS @ torch.arange(places, dtype=torch.float64) / weights_TS.sum(-1).clamp(min=1e-300)
    if float(mean_T.std()) < 1e-12:
        return 0.0
    return float(torch.corrcoef(torch.stack([t_T, mean_T]))[0, 1])


class Pair(NamedTuple):
    """A source and its target, token by token, with the attention weights between them."""

    source: tuple[str, ...]  # the end symbol last
    target: tuple[str, ...]
    weights_TS: Tensor  # the mean over layers and heads, or over those that were asked for
    entropies: dict[str, list[float]]  # by layer, of each head
    kind: Known | None
    agreement: Agreement | None

    @property
    def slope(self) -> float:
        return slope(self.between_words_TS)

    @property
    def between_words_TS(self) -> Tensor:
        """The weights without the end symbols: the order of words says nothing about those."""
        return self.weights_TS[: _words(self.target), : _words(self.source)]


def _words(pieces: Sequence[str]) -> int:
    """Tokens before the end symbol; one that stands alone counts."""
    return len(pieces) - (len(pieces) > 1 and pieces[-1] == END)


def align_pairs(
    subject: Subject,
    specimens: Specimens,
    progress: Progress,
    *,
    rows: int,
    layers: Sequence[int],
    heads: Sequence[int],
    queries: Sequence[int],
    drawn: int,
    judged: int,
) -> Finding:
    """The settings are those of the lens."""
    looks = specimens.at(0).looks
    pattern = None if looks is None else re.sub(r"\d+", "*", looks)  # of every layer
    within = _within([specimens.at(at) for at in range(min(rows, len(specimens)))], pattern)
    tables = [_heads_within(within)] if within else []
    if pattern is None:
        said = f"{subject.name} has no attention to its source: its target depends on the source through the state."
        return Finding("attention", "Alignment", subject.name, (said,), tables=tuple(tables), data={"pairs": []})
    pairs = [
        _pair(specimens.at(at), pattern, layers, heads)
        for at in progress.over(range(min(judged, len(specimens))), "aligning")
    ]
    averaged = _averaged(layers=layers, heads=heads)
    figures: list[Drawing] = [
        _map(at, pair, queries, averaged, told=specimens.has_truth) for at, pair in enumerate(pairs[:drawn])
    ]
    return Finding(
        "attention",
        "Alignment",
        subject.name,
        tuple(_sentences(subject.name, pairs)),
        tuple(figures),
        (_table(pairs), _heads(pairs), *tables),
        {
            "pairs": [
                {
                    "source": pair.source,
                    "target": pair.target,
                    "slope": pair.slope,
                    "kind": pair.kind,
                    "agreement": None if pair.agreement is None else pair.agreement._asdict(),
                    "weights": pair.weights_TS.tolist() if at < drawn else None,
                }
                for at, pair in enumerate(pairs)
            ]
        },
        missing=_not_shown(len(pairs), len(specimens), drawn),
    )


def _not_shown(pairs: int, all_: int, drawn: int) -> tuple[str, ...]:
    missing = []
    if pairs < all_:
        missing.append(f"The first {pairs:,} of {all_:,} pairs were aligned; the setting judged aligns more.")
    if pairs > drawn:
        missing.append(f"{drawn} of {pairs:,} alignments are drawn; the numbers are of all.")
    return tuple(missing)


def _pair(row: Specimen, pattern: str, layers: Sequence[int], heads: Sequence[int]) -> Pair:
    assert row.machine is not None
    with torch.no_grad():
        z_1TI = row.enter(row.x_TE[None])
        state = row.begun(z_1TI)
    cross = cross_weights(row.machine, state, z_1TI[0, row.first :], pattern=pattern)
    source, target = row.pieces[: row.first], row.questions
    most = max(weight_THS.shape[1] for weight_THS in cross.weights.values())
    refuse_unknown(layers=(layers, range(len(cross.weights))), heads=(heads, range(most)))
    weights_TS = cross.mean(layers=layers, heads=heads).double().cpu()
    content = [piece for piece in target if piece != END]  # a target that was cut has no end symbol
    kind = known([piece for piece in source if piece != END], content)
    right = None if kind is None or not content else agreement(weights_TS, gold(kind, len(content)))
    entropies = {name: entropy(weight_THS.double()).mean(0).tolist() for name, weight_THS in cross.weights.items()}
    return Pair(source, target, weights_TS, entropies, kind, right)


def _within(rows: Sequence[Specimen], pattern: str | None) -> dict[str, list[Head]]:
    """Self-attention heads, by the name of their layer."""
    seen = [see_row(row).weights for row in rows]
    names = [name for name in seen[0] if pattern is None or not fnmatchcase(name, pattern)]
    return {
        name: describe(layer, [weights[name] for weights in seen if name in weights])
        for layer, name in enumerate(names)
    }


def _heads_within(within: dict[str, list[Head]]) -> Named:
    table = table_of(
        [(name, head) for name, heads in within.items() for head in heads],
        (Column("layer", "layer", text=True), lambda pair: pair[0], None),
        (Column("head", "head"), lambda pair: pair[1].head, whole),
        (Column("entropy", "entropy", "bits"), lambda pair: pair[1].entropy, plain),
        (Column("share", "of the largest", "0: one token, 1: a mean"), lambda pair: pair[1].share, share),
        (Column("distance", "distance", "tokens, in the mean"), lambda pair: pair[1].distance, rough),
        (Column("itself", "on itself"), lambda pair: pair[1].itself, share),
    )
    reading = "Means over the tokens of several pairs: heads of the encoder attend to the source, others to the target."
    return Named("attention-within", "The self-attention heads", reading, table)


def _averaged(**wanted: Sequence[int]) -> str:
    """What a map is the mean of."""
    some = [
        f"{name[:-1] if len(numbers) == 1 else name} {', '.join(map(str, numbers))}"
        for name, numbers in wanted.items()
        if numbers
    ]
    return f"of {' and '.join(some)}" if some else "in the mean over layers and heads"


def _map(at: int, pair: Pair, wanted: Sequence[int], averaged: str, *, told: bool) -> Figure:
    queries = valid_queries(wanted, len(pair.target), of=f"the target of pair {at + 1}")
    queries = queries if wanted else queries[: _words(pair.target)]
    columns = _words(pair.source)
    on_end = float(pair.weights_TS[queries, columns:].sum(-1).mean())
    end = f" The end symbols are not drawn; that of the source has {share(on_end)} of the weight." if on_end else ""
    direction = "forward" if pair.slope > 0.5 else "backward" if pair.slope < -0.5 else "in no one direction"
    right = ""
    if pair.agreement is not None:
        right = (
            f"; the target is a {pair.kind}, and {pair.agreement.right} of {pair.agreement.tokens} tokens attend right"
        )
    return Figure(
        f"attention-pair-{at}",
        f"Pair {at + 1}: {' '.join(pair.source[:6])[:48]}",
        "map",
        Axis("source", categories=tuple(f"{place} {alone(name)}" for place, name in enumerate(pair.source[:columns]))),
        Axis(
            "target, as given" if told else "target",
            categories=tuple(f"{place} {alone(pair.target[place])}" for place in queries),
        ),
        (),
        reading="A row is a token of the target; the colour is its attention weight on each token of the source, "
        f"{averaged}.{end}",
        finding=f"The alignment runs {direction} (correlation {plain(pair.slope)}){right}.",
        grid=Grid(
            tuple(map(tuple, pair.weights_TS[queries, :columns].tolist())),
            "weight",
            limits=(0.0, float(pair.weights_TS[queries, :columns].max()) or 1.0),
        ),
    )


def _sentences(name: str, pairs: list[Pair]) -> list[str]:
    forward = sum(pair.slope > 0.5 for pair in pairs)
    backward = sum(pair.slope < -0.5 for pair in pairs)
    said = [
        f"Of {len(pairs)} alignments of {name}, {forward} {'runs' if forward == 1 else 'run'} forward, {backward} "
        f"backward, and {len(pairs) - forward - backward} in no one direction."
    ]
    judged = [pair.agreement for pair in pairs if pair.agreement is not None]
    if judged:
        tokens = sum(judgement.tokens for judgement in judged)
        right, near = sum(judgement.right for judgement in judged), sum(judgement.near for judgement in judged)
        weight = sum(judgement.weight * judgement.tokens for judgement in judged)
        said.append(
            f"{len(judged)} of the targets are a copy or a reversal, so the right alignment is known: "
            f"{share(right / tokens)} of their tokens attend most to the right place, {share(near / tokens)} to it or "
            f"a neighbour; it has {share(weight / tokens)} of the weight."
        )
    return said


def _table(pairs: list[Pair]) -> Named:
    def right(pair: Pair) -> float | None:
        return None if pair.agreement is None else pair.agreement.right / pair.agreement.tokens

    def weight(pair: Pair) -> float | None:
        return None if pair.agreement is None else pair.agreement.weight

    table = table_of(
        pairs,
        (Column("source", "source", text=True), lambda pair: " ".join(pair.source[:-1]), None),
        (Column("target", "target", text=True), lambda pair: " ".join(pair.target[:-1]), None),
        (Column("slope", "direction", "1 forward, −1 backward"), lambda pair: pair.slope, plain),
        (Column("right", "right", "of known alignments"), right, share),
        (Column("weight", "weight", "on the right place"), weight, share),
    )
    return Named("attention-pairs", "The pairs", "One row a pair.", table)


def _heads(pairs: list[Pair]) -> Named:
    """Entropy of each head, in the mean over pairs."""

    def mean(at: tuple[str, int]) -> float:
        name, head = at
        return sum(pair.entropies[name][head] for pair in pairs) / len(pairs)

    table = table_of(
        [(name, head) for name, entropies in pairs[0].entropies.items() for head in range(len(entropies))],
        (Column("layer", "layer", text=True), lambda at: at[0], None),
        (Column("head", "head"), lambda at: at[1], str),
        (Column("entropy", "entropy", "bits"), mean, plain),
    )
    reading = "Mean entropy of the weights over the source: 0 selects one token."
    return Named("attention-heads", "The heads that attend to the source", reading, table)

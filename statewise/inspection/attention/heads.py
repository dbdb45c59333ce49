"""The heads of a language model: their maps, how sharp they are, where they look.

B rows, T queries, H heads, S places.
"""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from statewise.display import alone, plain, rough, share
from statewise.figures import Axis, Cell, Column, Drawing, Figure, Grid, Table
from statewise.inspection.attention.settings import AttentionSettings
from statewise.inspection.attention.weights import Head, Seen, describe, see
from statewise.inspection.finding import Finding, Named
from statewise.inspection.progress import Progress
from statewise.inspection.subject import Subject
from statewise.inspection.text import Reading, windows
from statewise.specs import UserError

_TITLE = "Attention"


def look_at_heads(subject: Subject, settings: AttentionSettings, progress: Progress) -> Finding:
    reading = subject.tokens
    length = min(settings.window, len(reading), reading.window or settings.window)
    some_BT = windows(reading, length, settings.rows)
    seen = [see(subject.machine, row_BT.to(subject.machine.like.device)) for row_BT in _rows(some_BT, progress)]
    if not seen[0].names:
        said = f"{subject.name} has no attention: it looks at its past through its state alone."
        return Finding("attention", _TITLE, subject.name, (said,), data={"layers": []})
    weights = [torch.cat([one.weights[at] for one in seen]) for at in range(len(seen[0].names))]
    heads = [head for layer, weights_BTHS in enumerate(weights) for head in describe(layer, weights_BTHS)]
    chosen = chosen_heads(heads, settings)
    names = [f"{at} {alone(name)}" for at, name in enumerate(reading.part(*_first(reading, some_BT)).names())]
    figures: list[Drawing] = [
        _map(one, weights[one.layer][0, :, one.head], names, chosen_queries(settings.queries, length)) for one in chosen
    ]
    if len(heads) > 1:
        figures.append(entropies(heads))
    apart = max(one.apart for one in seen)
    return Finding(
        "attention",
        _TITLE,
        subject.name,
        tuple(_sentences(subject.name, heads, seen[0], apart)),
        tuple(figures),
        (_table(heads),),
        {
            "layers": list(seen[0].names),
            "heads": [one._asdict() for one in heads],
            "kernel_difference": apart,
            "window": length,
        },
    )


def _rows(some_BT: Tensor, progress: Progress) -> list[Tensor]:
    return list(progress.over(list(torch.split(some_BT, 1)), "looking at windows"))


def _first(reading: Reading, some_BT: Tensor) -> tuple[int, int]:
    """Where the first window lies in the text."""
    length = some_BT.shape[1]
    places = reading.tokens_T.unfold(0, length, 1)
    start = int((places == some_BT[0]).all(-1).nonzero()[0, 0])
    return start, start + length


def chosen_queries(wanted: Sequence[int], length: int, *, of: str = "the window") -> list[int]:
    wrong = [one for one in wanted if not 0 <= one < length]
    if wrong:
        raise UserError(f"queries = {wrong[0]} is not a token of {of}", fix=f"0 to {length - 1}")
    return list(wanted) or list(range(length))


def refuse_unknown(settings: AttentionSettings, *, layers: Collection[int], heads: Collection[int]) -> None:
    for name, wanted, known in (("layers", settings.layers, layers), ("heads", settings.heads, heads)):
        wrong = [one for one in wanted if one not in known]
        if wrong:
            raise UserError(f"{name} = {wrong[0]} is not there", fix=f"this model has {name} 0 to {max(known)}")


def chosen_heads(heads: Sequence[Head], settings: AttentionSettings) -> list[Head]:
    """What was asked for, else the sharpest."""
    refuse_unknown(settings, layers={one.layer for one in heads}, heads={one.head for one in heads})
    able = [
        one
        for one in heads
        if (not settings.layers or one.layer in settings.layers) and (not settings.heads or one.head in settings.heads)
    ]
    sharpest = sorted(able, key=lambda one: one.entropy)[: settings.maps]
    return sorted(sharpest, key=lambda one: (one.layer, one.head))


def _map(one: Head, weights_TS: Tensor, names: Sequence[str], queries: Sequence[int]) -> Figure:
    rows = [
        tuple(None if place > query else float(value) for place, value in enumerate(weights_TS[query].tolist()))
        for query in queries
    ]
    return Figure(
        f"attention-layer-{one.layer}-head-{one.head}",
        f"Layer {one.layer}, head {one.head}",
        "map",
        Axis("token that is looked at", categories=tuple(names)),
        Axis("token that looks", categories=tuple(names[query] for query in queries)),
        (),
        reading="A row is a token that looks back; the colour is how much of it each token gets. A row sums to 1.",
        finding=f"It looks {rough(one.distance)} tokens back in the mean, with {plain(one.entropy)} bits of entropy: "
        f"{share(one.previous)} on the token before, {share(one.itself)} on its own, {share(one.first)} on the first.",
        grid=Grid(tuple(rows), "weight", limits=(0.0, max(max(v or 0.0 for v in row) for row in rows) or 1.0)),
    )


def entropies(heads: Sequence[Head]) -> Figure:
    layers = sorted({one.layer for one in heads})
    most = max(one.head for one in heads) + 1
    by_place = {(one.layer, one.head): one for one in heads}
    values = tuple(
        tuple(by_place[layer, head].share if (layer, head) in by_place else None for head in range(most))
        for layer in layers
    )
    sharpest = min(heads, key=lambda one: one.share)
    return Figure(
        "attention-entropy",
        "How sharp each head is",
        "map",
        Axis("head", categories=tuple(str(head) for head in range(most))),
        Axis("layer", categories=tuple(str(layer) for layer in layers)),
        (),
        reading="Mean entropy of a head's weights, as a share of that of a head that looks everywhere alike: 0 is a "
        "choice of one token, 1 a plain mean.",
        finding=f"The sharpest is layer {sharpest.layer}, head {sharpest.head}, with {share(sharpest.share)}.",
        grid=Grid(values, "share of the largest entropy", limits=(0.0, 1.0)),
    )


def _sentences(name: str, heads: Sequence[Head], seen: Seen, apart: float) -> list[str]:
    sharpest, widest = min(heads, key=lambda one: one.share), max(heads, key=lambda one: one.share)
    furthest = max(heads, key=lambda one: one.distance)
    beside = sum(one.previous > 0.5 for one in heads)
    return [
        f"{name} looks with {len(heads)} heads in {len(seen.names)} layers: the sharpest (layer {sharpest.layer}, head "
        f"{sharpest.head}) uses {share(sharpest.share)} of the entropy it could have, the widest "
        f"{share(widest.share)}; layer {furthest.layer}, head {furthest.head} looks furthest back, "
        f"{rough(furthest.distance)} tokens in the mean; {_looking(beside)} mostly at the token before.",
        f"The weights are those of the equation; the fast kernel's logits are at most {rough(apart)} from theirs.",
    ]


def _looking(heads: int) -> str:
    return "none looks" if not heads else "1 looks" if heads == 1 else f"{heads} look"


def _table(heads: Sequence[Head]) -> Named:
    columns = (
        Column("layer", "layer"),
        Column("head", "head"),
        Column("entropy", "entropy", "bits"),
        Column("share", "of the largest", "0: a choice, 1: a mean"),
        Column("distance", "looks back", "tokens, in the mean"),
        Column("itself", "on itself"),
        Column("previous", "on the one before"),
        Column("first", "on the first"),
    )
    rows = tuple(
        (
            Cell(one.layer, str(one.layer)),
            Cell(one.head, str(one.head)),
            Cell(one.entropy, plain(one.entropy)),
            Cell(one.share, share(one.share)),
            Cell(one.distance, rough(one.distance)),
            Cell(one.itself, share(one.itself)),
            Cell(one.previous, share(one.previous)),
            Cell(one.first, share(one.first)),
        )
        for one in heads
    )
    reading = "Means over the queries of several windows; a query that sees only itself is left out."
    return Named("attention-heads", "The heads", reading, Table(columns, rows))

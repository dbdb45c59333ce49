"""The heads of whatever reads rows: a classifier's, a tagger's, a forecaster's.

T places of a row that look, H heads, S places that are looked at.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from statewise.core import lens
from statewise.display import alone, plain, rough, share
from statewise.figures import Axis, Column, Drawing, Figure, Grid, Table, number
from statewise.inspection.attention.heads import chosen_heads, chosen_queries, entropies
from statewise.inspection.attention.settings import AttentionSettings
from statewise.inspection.attention.weights import TAP, Head, entropy
from statewise.inspection.finding import Finding, Named
from statewise.inspection.lens import choose_rows
from statewise.inspection.progress import Progress
from statewise.inspection.subject import Subject
from statewise.tasks import Specimen, Specimens, Words

_TITLE = "Attention"


class SeenRow(NamedTuple):
    weights: dict[str, Tensor]  # by the layer's name, [T, H, S]
    apart: float  # the largest difference between the answers that these weights give and those of the fast kernel


@torch.no_grad()
def see_row(one: Specimen) -> SeenRow:
    x_1TE = one.x_TE[None]
    fast = one.answer(one.read(one.enter(x_1TE)), x_1TE)
    z_1TI = one.enter(x_1TE)
    with lens(TAP) as opened:
        slow = one.answer(one.read(z_1TI), x_1TE)
    found = {}
    for name, moments in opened.seen.items():
        at = one.seen_at(name, len(moments))
        if at is None:
            continue
        order = torch.from_numpy(np.ascontiguousarray(at - one.stretch(name).begin))
        weights_THS = torch.stack([_heads(moment) for moment in moments]).cpu()
        back = torch.empty_like(order).index_copy(0, order, torch.arange(len(order)))
        weights_THS = weights_THS[back]
        # What is read from its end lists its places from there, too.
        found[name] = weights_THS[..., back] if weights_THS.shape[-1] == len(back) else weights_THS
    return SeenRow(found, float((fast - slow).abs().max()))


def _heads(moment: Tensor) -> Tensor:
    """`[H, S]` of one row; who has no heads has one."""
    return moment[0] if moment.dim() == 3 else moment[0, None]


def look_at_rows(subject: Subject, specimens: Specimens, settings: AttentionSettings, progress: Progress) -> Finding:
    words = specimens.words
    rows = [specimens.at(at) for at in choose_rows(specimens, settings.rows)]
    seen = [see_row(one) for one in progress.over(rows, "looking at rows")]
    layers = list(seen[0].weights)
    if not layers:
        said = f"{subject.name} has no attention: it reads its rows without a look of its own at other {words.place}s."
        return Finding("attention", _TITLE, subject.name, (said,), data={"layers": []})
    heads = [
        head
        for layer, name in enumerate(layers)
        for head in describe_rows(layer, [one.weights[name] for one in seen if name in one.weights])
    ]
    shown = max(
        range(len(rows)), key=lambda at: (len(rows[at]) <= settings.window, -abs(len(rows[at]) - settings.window))
    )
    row, length = rows[shown], min(len(rows[shown]), settings.window)
    names = [f"{at} {alone(piece)}" for at, piece in enumerate(row.pieces[:length])]
    queries = chosen_queries(settings.queries, length)
    figures: list[Drawing] = [
        _map(one, seen[shown].weights[layers[one.layer]][:, one.head], names, queries, words, row.name)
        for one in chosen_heads(heads, settings)
    ]
    if len(heads) > 1:
        figures.append(entropies(heads))
    apart = max(one.apart for one in seen)
    cut = (f"The row that is drawn has {len(row)} {words.place}s; the first {length} are shown.",)
    return Finding(
        "attention",
        _TITLE,
        subject.name,
        tuple(_sentences(subject.name, heads, layers, apart, words)),
        tuple(figures),
        (_table(heads, words),),
        {
            "layers": layers,
            "heads": [one._asdict() for one in heads],
            "kernel_difference": apart,
            "rows": [one.name for one in rows],
        },
        cut if len(row) > length else (),
    )


def describe_rows(layer: int, weights: Sequence[Tensor]) -> list[Head]:
    """What each head does in the mean over all places of all rows; what sees itself alone is left out."""
    found = []
    for head in range(weights[0].shape[1]):
        sums, count = np.zeros(6), 0
        for weights_THS in weights:
            weights_TS = weights_THS[:, head].double()
            time, places = weights_TS.shape
            at_T, at_S = torch.arange(time), torch.arange(places)
            open_T = (weights_THS > 0).any(1).sum(-1).clamp(min=1).double()  # places that it could look at
            able_T = open_T > 1
            if not bool(able_T.any()):
                continue
            away_TS = (at_T[:, None] - at_S[None]).abs()
            entropy_T = entropy(weights_TS)
            per_T = (
                entropy_T,
                entropy_T / open_T.log2().clamp(min=1e-9),
                (weights_TS * away_TS).sum(-1),
                (weights_TS * (away_TS == 0)).sum(-1),
                (weights_TS * (at_T[:, None] - at_S[None] == 1)).sum(-1),
                weights_TS[:, 0],
            )
            sums += [float(one_T[able_T].sum()) for one_T in per_T]
            count += int(able_T.sum())
        found.append(Head(layer, head, *(sums / max(count, 1)).tolist()))
    return found


def _map(
    one: Head, weights_TS: Tensor, names: Sequence[str], queries: Sequence[int], words: Words, where: str
) -> Figure:
    rows = tuple(tuple(float(value) for value in weights_TS[query, : len(names)].tolist()) for query in queries)
    return Figure(
        f"attention-layer-{one.layer}-head-{one.head}",
        f"Layer {one.layer}, head {one.head}",
        "map",
        Axis(f"{words.place} that is looked at", categories=tuple(names)),
        Axis(f"{words.place} that looks", categories=tuple(names[query] for query in queries)),
        (),
        reading=f"Of {where}: a row is a {words.place} that looks; the colour is how much each {words.place} gets.",
        finding=f"It looks {rough(one.distance)} {words.place}s away in the mean, with {plain(one.entropy)} bits of "
        f"entropy: {share(one.itself)} on its own place, {share(one.previous)} on the one before, "
        f"{share(one.first)} on the first.",
        grid=Grid(rows, "weight", limits=(0.0, max(max(row) for row in rows) or 1.0)),
    )


def _sentences(name: str, heads: Sequence[Head], layers: Sequence[str], apart: float, words: Words) -> list[str]:
    sharpest, widest = min(heads, key=lambda one: one.share), max(heads, key=lambda one: one.share)
    furthest = max(heads, key=lambda one: one.distance)
    return [
        f"{name} looks with {len(heads)} heads in {len(layers)} layers: the sharpest (layer {sharpest.layer}, head "
        f"{sharpest.head}) uses {share(sharpest.share)} of the entropy it could have, the widest "
        f"{share(widest.share)}; layer {furthest.layer}, head {furthest.head} looks furthest, "
        f"{rough(furthest.distance)} {words.place}s in the mean.",
        f"The weights are those of the equation; the fast kernel's answers are at most {rough(apart)} from theirs.",
    ]


def _table(heads: Sequence[Head], words: Words) -> Named:
    columns = (
        Column("layer", "layer"),
        Column("head", "head"),
        Column("entropy", "entropy", "bits"),
        Column("share", "of the largest", "0: a choice, 1: a mean"),
        Column("distance", "looks away", f"{words.place}s, in the mean"),
        Column("itself", "on itself"),
        Column("previous", "on the one before"),
        Column("first", "on the first"),
    )
    rows = tuple(
        (
            number(one.layer, lambda value: f"{value:.0f}"),
            number(one.head, lambda value: f"{value:.0f}"),
            number(one.entropy, plain),
            number(one.share, share),
            number(one.distance, rough),
            number(one.itself, share),
            number(one.previous, share),
            number(one.first, share),
        )
        for one in heads
    )
    reading = "Means over the places of several rows; a place that sees only itself is left out."
    return Named("attention-heads", "The heads", reading, Table(columns, rows))

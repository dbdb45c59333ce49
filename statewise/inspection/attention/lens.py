"""The lens `attention`: the heads of any model, and alignments of encoder-decoders.

T places that attend, H heads, S places that are attended to.
"""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from statewise.display import Progress, alone, plain, rough, share, whole
from statewise.figures import Axis, Column, Drawing, Figure, Grid, Passage, table_of
from statewise.inspection.attention.alignment import align_pairs
from statewise.inspection.attention.weights import (
    Head,
    Seen,
    describe,
    entropy,
    refuse_unknown,
    see,
    see_row,
    valid_queries,
)
from statewise.inspection.finding import Finding, Named
from statewise.inspection.lens import Lens, choose_rows
from statewise.inspection.subject import Subject
from statewise.specs import Spec
from statewise.tasks import Specimen, Specimens, TextSpecimens


class AttentionSettings(Spec):
    window: int = Field(40, ge=2, le=256, description="tokens of a map, or of the row that is drawn")
    rows: int = Field(8, ge=1, description="windows, or rows, that heads are described on")
    layers: tuple[int, ...] = Field(
        (), description="layers that are drawn, from 0; default: as many as fit, of alignments the mean"
    )
    heads: tuple[int, ...] = Field(
        (), description="heads that are drawn, from 0; default: as many as fit, of alignments the mean"
    )
    queries: tuple[int, ...] = Field((), description="tokens whose weights are drawn, from 0; default: all")
    maps: int = Field(4, ge=1, le=64, description="maps that are drawn at most")
    pairs: int = Field(4, ge=1, le=64, description="pairs whose alignment is drawn; translations")
    judged: int = Field(64, ge=1, description="pairs that are judged; translations")


def apply(subject: Subject, settings: AttentionSettings, progress: Progress) -> Finding:
    specimens = subject.specimens
    assert specimens is not None
    if isinstance(specimens, TextSpecimens):
        return _on_text(subject, specimens, settings, progress)
    if specimens.at(0).begin is not None:  # a decoder, after an encoder
        chosen = settings.subset("rows", "layers", "heads", "queries", "judged")
        return align_pairs(subject, specimens, progress, **chosen, drawn=settings.pairs)
    return _on_rows(subject, specimens, settings, progress)


def _on_text(subject: Subject, text: TextSpecimens, settings: AttentionSettings, progress: Progress) -> Finding:
    length = min(settings.window, len(text.tokens_T), text.window or settings.window)
    window_BT = text.window_tokens(length, settings.rows)
    device = subject.machine.like.device
    seen = [
        see(subject.machine, window_1T.to(device))
        for window_1T in progress.over(list(torch.split(window_BT, 1)), "reading windows")
    ]
    if not seen[0].weights:
        return _none(subject, "its only access to the past is its state")
    first = text.windows(length - 1, settings.rows).rows[0]
    return _found(
        subject,
        settings,
        seen,
        drawn=seen[0],
        pieces=text.names(first.begin, first.end + 1),
        place="token",
        where="The first window",
        causal=True,
        data={"window": length},
    )


def _on_rows(subject: Subject, specimens: Specimens, settings: AttentionSettings, progress: Progress) -> Finding:
    place = specimens.words.place
    rows = [specimens.at(at) for at in choose_rows(specimens, settings.rows)]
    seen = [see_row(row) for row in progress.over(rows, "reading rows")]
    pooled = [(row, seen_row.pooled_S) for row, seen_row in zip(rows, seen) if seen_row.pooled_S is not None]
    if not seen[0].weights:
        nothing = _none(subject, f"its {place}s do not attend to each other")
        return _with_pooled(nothing._replace(sentences=()), specimens, pooled) if pooled else nothing
    drawn = max(
        range(len(rows)), key=lambda at: (len(rows[at]) <= settings.window, -abs(len(rows[at]) - settings.window))
    )
    row, length = rows[drawn], min(len(rows[drawn]), settings.window)
    finding = _found(
        subject,
        settings,
        seen,
        drawn=seen[drawn],
        pieces=row.pieces[:length],
        place=place,
        where=row.name,
        causal=False,
        data={"rows": [row.name for row in rows]},
    )
    if pooled:
        finding = _with_pooled(finding, specimens, pooled)
    cut = f"The row that is drawn has {len(row)} {place}s; the first {length} are shown."
    return finding._replace(missing=(cut,)) if len(row) > length else finding


def _with_pooled(finding: Finding, specimens: Specimens, pooled: Sequence[tuple[Specimen, Tensor]]) -> Finding:
    """The same with what a summary by attention is made of: the text of each row, and its most important places."""
    place = specimens.words.place
    between = "" if specimens.words.text and not specimens.words.spaced else " "
    pieces: list[tuple[str, float | None]] = []
    for row, weight_S in pooled:
        values = weight_S.tolist()
        pieces += [(f"{piece}{between}", value) for piece, value in zip(row.pieces, values)]
        pieces[-1] = (f"{pieces[-1][0].rstrip()}\n", values[-1])
    top = sum(float(weight_S.max()) for _, weight_S in pooled) / len(pooled)
    spread = sum(float(2 ** entropy(weight_S.double())) for _, weight_S in pooled) / len(pooled)
    said = (
        f"Rows of {finding.subject} are summarised by attention: in the mean over {len(pooled)} rows, one {place} has "
        f"{share(top)} of the weight, and the weights are as even as over {rough(spread)} {place}s."
    )
    passage = Passage(
        "attention-pooled",
        "Weights of the summary",
        tuple(pieces),
        "of the row's weight",
        reading=f"A line is a row. Darker: the {place} has more weight in the vector that the answer is made from.",
        finding=f"The heaviest {place} of a row has {share(top)} of its weight in the mean.",
    )
    table = table_of(
        pooled,
        (Column("row", "row", text=True), lambda pair: pair[0].name, None),
        (Column("answer", "class", text=True), lambda pair: pair[0].questions[0], None),
        (Column("heaviest", f"heaviest {place}s", text=True), lambda pair: _heaviest(*pair), None),
        (Column("weight", "weight", "of the heaviest"), lambda pair: float(pair[1].max()), share),
    )
    rows = [{"row": row.name, "pieces": list(row.pieces), "weights": weight_S.tolist()} for row, weight_S in pooled]
    return finding._replace(
        sentences=(said, *finding.sentences),
        figures=(passage, *finding.figures),
        tables=(Named("attention-pooled-rows", "The rows", "One line a row.", table), *finding.tables),
        data={**finding.data, "pooled": rows},
    )


def _heaviest(row: Specimen, weight_S: Tensor, count: int = 3) -> str:
    order = weight_S.argsort(descending=True)[:count].tolist()
    return ", ".join(alone(row.pieces[at].strip()) for at in order)


def _none(subject: Subject, instead: str) -> Finding:
    said = f"{subject.name} has no attention: {instead}."
    return Finding("attention", "Attention", subject.name, (said,), data={"layers": []})


def _found(
    subject: Subject,
    settings: AttentionSettings,
    seen: Sequence[Seen],
    *,
    drawn: Seen,
    pieces: Sequence[str],
    place: str,
    where: str,
    causal: bool,
    data: dict[str, object],
) -> Finding:
    layers = list(seen[0].weights)
    heads = [
        head
        for layer, name in enumerate(layers)
        for head in describe(
            layer, [seen_row.weights[name] for seen_row in seen if name in seen_row.weights], causal=causal
        )
    ]
    names = [f"{at} {alone(piece)}" for at, piece in enumerate(pieces)]
    queries = valid_queries(settings.queries, len(pieces))
    figures: list[Drawing] = [
        _map(
            chosen_head,
            drawn.weights[layers[chosen_head.layer]][:, chosen_head.head],
            names,
            queries,
            place,
            where,
            causal=causal,
        )
        for chosen_head in _chosen_heads(heads, settings)
    ]
    if len(heads) > 1:
        figures.append(_entropies(heads))
    apart = max(seen_row.apart for seen_row in seen)
    return Finding(
        "attention",
        "Attention",
        subject.name,
        tuple(_sentences(subject.name, heads, layers, apart, place, causal=causal)),
        tuple(figures),
        (_table(heads, place),),
        {"layers": layers, "heads": [head._asdict() for head in heads], "kernel_difference": apart, **data},
    )


def _chosen_heads(heads: Sequence[Head], settings: AttentionSettings) -> list[Head]:
    """Those that the settings name, else the sharpest."""
    refuse_unknown(
        layers=(settings.layers, {head.layer for head in heads}), heads=(settings.heads, {head.head for head in heads})
    )
    able = [
        head
        for head in heads
        if (not settings.layers or head.layer in settings.layers)
        and (not settings.heads or head.head in settings.heads)
    ]
    sharpest = sorted(able, key=lambda head: head.entropy)[: settings.maps]
    return sorted(sharpest, key=lambda head: (head.layer, head.head))


def _map(
    head: Head,
    weights_TS: Tensor,
    names: Sequence[str],
    queries: Sequence[int],
    place: str,
    where: str,
    *,
    causal: bool,
) -> Figure:
    rows = tuple(
        tuple(
            None if causal and at > query else float(value)
            for at, value in enumerate(weights_TS[query, : len(names)].tolist())
        )
        for query in queries
    )
    return Figure(
        f"attention-layer-{head.layer}-head-{head.head}",
        f"Layer {head.layer}, head {head.head}",
        "map",
        Axis(f"{place} attended to", categories=tuple(names)),
        Axis(f"{place} that attends", categories=tuple(names[query] for query in queries)),
        (),
        reading=f"{where}: a row is a {place}; the colour is its attention weight on each {place}.",
        finding=f"It attends to {place}s {rough(head.distance)} away in the mean, with {plain(head.entropy)} bits of "
        f"entropy: {share(head.itself)} on the {place} itself, {share(head.previous)} on the one before, "
        f"{share(head.first)} on the first.",
        grid=Grid(rows, "weight", limits=(0.0, max(max(v or 0.0 for v in row) for row in rows) or 1.0)),
    )


def _entropies(heads: Sequence[Head]) -> Figure:
    layers = sorted({head.layer for head in heads})
    most = max(head.head for head in heads) + 1
    by_place = {(head.layer, head.head): head for head in heads}
    values = tuple(
        tuple(by_place[layer, head].share if (layer, head) in by_place else None for head in range(most))
        for layer in layers
    )
    sharpest = min(heads, key=lambda head: head.share)
    return Figure(
        "attention-entropy",
        "Entropy of each head",
        "map",
        Axis("head", categories=tuple(str(head) for head in range(most))),
        Axis("layer", categories=tuple(str(layer) for layer in layers)),
        (),
        reading="Mean entropy of a head's weights, as a share of that of uniform weights: 0 selects one token, 1 is a "
        "plain mean.",
        finding=f"The sharpest is layer {sharpest.layer}, head {sharpest.head}, with {share(sharpest.share)}.",
        grid=Grid(values, "share of the largest entropy", limits=(0.0, 1.0)),
    )


def _sentences(
    name: str, heads: Sequence[Head], layers: Sequence[str], apart: float, place: str, *, causal: bool
) -> list[str]:
    sharpest, widest = min(heads, key=lambda head: head.share), max(heads, key=lambda head: head.share)
    furthest = max(heads, key=lambda head: head.distance)
    previous = sum(head.previous > 0.5 for head in heads)
    local = f"; {previous} of them put{'s' * (previous == 1)} most weight on the {place} before" if causal else ""
    return [
        f"{name} has {len(heads)} heads in {len(layers)} layers: the sharpest (layer {sharpest.layer}, head "
        f"{sharpest.head}) uses {share(sharpest.share)} of the largest possible entropy, the widest "
        f"{share(widest.share)}; layer {furthest.layer}, head {furthest.head} attends furthest, "
        f"{rough(furthest.distance)} {place}s in the mean{local}.",
        f"The weights are those of the equation; the fast kernel's {'logits' if causal else 'answers'} differ by at "
        f"most {rough(apart)}.",
    ]


def _table(heads: Sequence[Head], place: str) -> Named:
    table = table_of(
        heads,
        (Column("layer", "layer"), lambda head: head.layer, whole),
        (Column("head", "head"), lambda head: head.head, whole),
        (Column("entropy", "entropy", "bits"), lambda head: head.entropy, plain),
        (Column("share", "of the largest", "0: one token, 1: a mean"), lambda head: head.share, share),
        (Column("distance", "distance", f"{place}s, in the mean"), lambda head: head.distance, rough),
        (Column("itself", "on itself"), lambda head: head.itself, share),
        (Column("previous", "on the one before"), lambda head: head.previous, share),
        (Column("first", "on the first"), lambda head: head.first, share),
    )
    reading = f"Means over the {place}s of several rows; a {place} that can only attend to itself is left out."
    return Named("attention-heads", "The heads", reading, table)


LENS = Lens(
    "attention",
    "Exact attention weights by layer and head, head entropy; alignments of translations, and whether they are right.",
    quick=True,
    settings=AttentionSettings,
    apply=apply,
)

"""Figures of gradient flows, each with a sentence computed from its numbers.

Q queries (answers), T places.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from statewise.display import alone, plain, share
from statewise.figures import Axis, Drawing, Figure, Grid, Passage, Series
from statewise.inspection.gradient.flow import Decay, Flow, Sides
from statewise.tasks import Floats, Specimen, Words

_SHOWN = 400  # pieces of a row
_POINTS = 400  # of a curve, and columns of a map: neighbours are merged beyond that
_NOISE = 1e-16  # of the largest norm: below it there is nothing to draw


def reach(sides: Sides, threshold: float, words: Words) -> str:
    """How far a gradient reaches, in words."""

    def side(decay: Decay, direction: str) -> str:
        length = decay.length(threshold)
        if length is None:
            return f"at least {decay.distance[-1]} {words.step}s {direction} (the longest distance measured)"
        return f"up to {length} {words.step}{'' if length == 1 else 's'} {direction}"

    back = "down" if words.step == "edge" else "back"
    both = ((sides.before, back), (sides.after, "ahead"))
    return " and ".join(side(decay, direction) for decay, direction in both if decay is not None)


def is_state(side: str) -> bool:
    return side.split()[0] == "state"


def decays(sides: Mapping[str, Sides], threshold: float, words: Words, *, noise: float = _NOISE) -> list[Drawing]:
    """Norms by distance. Points below `noise` (of the largest) are left out."""
    if not sides or not words.distance:
        return []
    series, said = [], []
    for name, side in sides.items():
        points = [] if side.before is None else _points(side.before)
        if side.after is not None:
            points += [(-at, mean, low, high) for at, mean, low, high in _points(side.after) if at]
        least = noise * max(point[1] for point in points)
        kept = [point for point in sorted(points) if point[1] > least]
        if not kept:
            continue
        # A logarithmic axis has no 0.
        least = least or min(value for _, mean, low, _ in kept for value in (mean, low) if value > 0)
        x, mean, low, high = np.array([np.mean(some, axis=0) for some in _together(kept)]).T
        low = np.clip(low, least, mean if noise else None)
        series.append(_band(f"by the {name}", x, mean, low, np.maximum(high, low)))
        said.append(f"the {name} matters {reach(side, threshold, words)}")
    return [
        Figure(
            "gradient-distance",
            "Gradient by distance",
            "line",
            Axis(words.distance, unit="whole"),
            Axis(f"gradient norm of the {words.loss}", "log"),
            tuple(series),
            reading="Norm of the gradient of an answer's loss with respect to the input or state at this distance: "
            "mean over answers, the band holds the middle half. A straight line is exponential decay.",
            finding=f"Down to {share(threshold)} of its largest norm, {'; '.join(said)}.",
        )
    ]


def _together(items: Any) -> list[Any]:
    """Neighbours in at most so many groups as can be drawn."""
    return [items[int(a) : int(b)] for a, b in pairwise(np.linspace(0, len(items), min(len(items), _POINTS) + 1))]


def _band(name: str, *columns: Floats) -> Series:
    x, y, low, high = (tuple(map(float, column)) for column in columns)
    return Series(name, x, y, low, high)


def _points(decay: Decay) -> list[tuple[float, float, float, float]]:
    return list(zip(map(float, decay.distance), decay.mean, decay.low, decay.high))


def _map(
    name: str,
    title: str,
    norm_QT: Floats,
    x: Axis,
    y: Axis,
    *,
    range_: float,
    reading: str,
    finding: str,
) -> Figure:
    """Norms on a logarithmic colour scale; `range_`: the smallest norm that has a colour, of the largest."""
    norm_QT = np.nan_to_num(norm_QT)
    seen = norm_QT[norm_QT > 0]
    high = float(seen.max()) if len(seen) else 1.0
    low = max(float(seen.min()), high * range_) if len(seen) else 0.1
    values = tuple(tuple(float(value) if value > 0 else None for value in row) for row in norm_QT)
    grid = Grid(
        values,
        "norm of the gradient",
        log=True,
        limits=(low, high) if high > low else None,
    )
    return Figure(name, title, "map", x, y, (), reading=reading, finding=finding, grid=grid)


# -------------------------------------------------------------------- rows


def shares(flows: Sequence[Flow]) -> dict[str, float]:
    """Of rows with several parts: the share of an answer's gradient that flows to each, in the mean over answers."""
    return {name: float(np.mean([part for _, part in several])) for name, several in _shares(flows).items()}


def _shares(flows: Sequence[Flow]) -> dict[str, list[tuple[int, float]]]:
    """Each share with its query."""
    by_part: dict[str, list[tuple[int, float]]] = {}
    for flow in flows:
        assert flow.input_QT is not None
        for query, norm_T in zip(flow.queries, flow.input_QT):
            for part in flow.parts if len(flow.parts) > 1 and norm_T.sum() > 0 else ():
                by_part.setdefault(part.name, []).append(
                    (query, float(norm_T[part.begin : part.end].sum() / norm_T.sum()))
                )
    return by_part


def parts_sentence(parts: Mapping[str, float]) -> list[str]:
    if not parts:
        return []
    said = " and ".join(f"{share(part)} flows to the {name}" for name, part in parts.items())
    return [f"Of the gradient of an answer, {said} in the mean."]


def parts(flows: Sequence[Flow], words: Words) -> list[Drawing]:
    """The share of each part, along the answers."""
    series, ends = [], {}
    for name, several in _shares(flows).items():
        by_query: dict[int, list[float]] = {}
        for query, part in several:
            by_query.setdefault(query, []).append(part)
        points = [
            (float(query), float(np.mean(some)), *(float(q) for q in np.quantile(some, [0.25, 0.75])))
            for query, some in sorted(by_query.items())
            if len(some) > 1
        ]
        if len(points) > 1:
            series.append(_band(f"the {name}", *np.array(points).T))
            ends[name] = (points[0], points[-1])
    if not series:
        return []
    said = "; ".join(
        f"the {name} has {share(first[1])} of it at answer {first[0]:.0f} and {share(last[1])} at answer {last[0]:.0f}"
        for name, (first, last) in ends.items()
    )
    return [
        Figure(
            "gradient-parts",
            "Gradient by part of the row",
            "line",
            Axis(f"{words.question}s answered before", unit="whole"),
            Axis("share of the gradient", limits=(0.0, 1.0)),
            tuple(series),
            reading="Share of the gradient of an answer's loss that flows to each part: mean over rows, the band "
            "holds the middle half.",
            finding=f"{said[0].upper()}{said[1:]}.",
        )
    ]


def row_drawings(row: Specimen, flow: Flow, words: Words) -> list[Drawing]:
    """One row: cells as a grid, several queries as a map, a text as a text."""
    figures: list[Drawing] = []
    if not words.distance:
        figures.append(_cells(row, flow))
    elif len(flow.queries) > 1:
        norms = {**({} if flow.input_QT is None else {"input": flow.input_QT}), **_states(flow)}
        figures += [_row_map(row, flow, words, name, norm_QT) for name, norm_QT in norms.items()]
    if flow.input_QT is None:
        return figures
    if words.text or words.place == "node":
        figures.append(_text(row, flow, words))
    elif words.distance and len(flow.queries) == 1:
        figures.append(_line(row, flow, words))
    return figures


def _shown_query(row: Specimen, flow: Flow) -> tuple[int, Floats]:
    """The query that most places can influence (of several, the middle one), and the norms of its gradient.

    Of generated texts, the one with the largest gradient: each later token has more before it.
    """
    assert flow.input_QT is not None
    if row.parts:
        at = int(flow.input_QT.sum(1).argmax())
        return flow.queries[at], flow.input_QT[at]
    counted_Q = (~np.isnan(flow.distance_QT)).sum(1)
    best = np.flatnonzero(counted_Q == counted_Q.max())
    at = int(best[len(best) // 2])
    return flow.queries[at], flow.input_QT[at]


def _largest(row: Specimen, norm_T: Floats) -> tuple[str, float]:
    at = int(norm_T.argmax())
    return alone(row.pieces[at]), float(norm_T[at] / norm_T.sum()) if norm_T.sum() else 0.0


def concentration(rows: Sequence[Specimen], flows: Sequence[Flow], words: Words) -> str:
    """How much of a gradient lies on one place, in the mean."""
    norms = [norm_T for flow in flows if flow.input_QT is not None for norm_T in flow.input_QT if norm_T.sum() > 0]
    if not norms:
        return "No gradient flows to the input."
    most = float(np.mean([norm_T.max() / norm_T.sum() for norm_T in norms]))
    even = float(np.mean([1 / len(row) for row in rows]))
    return (
        f"The {words.place} with the largest gradient has {share(most)} of an answer's gradient in the mean; evenly "
        f"spread it would have {share(even)}."
    )


def _text(row: Specimen, flow: Flow, words: Words) -> Passage:
    query, norm_T = _shown_query(row, flow)
    between = " " if words.spaced else ""
    total = float(norm_T.sum()) or 1.0
    pieces = tuple((f"{piece}{between}", float(norm / total)) for piece, norm in zip(row.pieces, norm_T))[:_SHOWN]
    piece, part = _largest(row, norm_T)
    left = len(row) - len(pieces)
    return Passage(
        "gradient-text",
        "Gradient of one answer",
        pieces,
        "share of the gradient",
        reading=f"The row ({row.name}), coloured by the share of the gradient of one answer's loss "
        f"({row.questions[query]}) that flows to each {words.place}.",
        finding=f"{piece!r} has most of it: {share(part)}.",
        missing=(f"{left} more {words.place}s are not shown",) if left else (),
    )


def _line(row: Specimen, flow: Flow, words: Words) -> Figure:
    query, norm_T = _shown_query(row, flow)
    piece, part = _largest(row, norm_T)
    at, norms = (tuple(float(np.max(some)) for some in _together(of)) for of in (np.arange(len(row)), norm_T))
    return Figure(
        "gradient-row",
        "Gradient of one answer",
        "line",
        Axis(words.place, unit="whole"),
        Axis("norm of the gradient"),
        (Series(row.questions[query], at, norms),),
        reading=f"One row ({row.name}): norm of the gradient of its answer's loss by {words.place}.",
        finding=f"{words.place.capitalize()} {piece} has most of it: {share(part)}.",
    )


def _states(flow: Flow) -> dict[str, Floats]:
    """Norms by place. States that are read forwards share the map of the machine that goes on with the row."""
    ahead = {name: norm_QT for name, norm_QT in flow.reader_QT.items() if not name.endswith(" end")}
    backwards = {name: norm_QT for name, norm_QT in flow.reader_QT.items() if name not in ahead}
    if flow.state_QT is not None:
        joined_QT = flow.state_QT
        for norm_QT in ahead.values():
            joined_QT = np.where(np.isnan(joined_QT), norm_QT, joined_QT)
        return {"state": joined_QT, **backwards}
    return {**ahead, **backwards}


def _told_apart(names: Sequence[str]) -> list[str]:
    """Names for an axis; where one occurs twice, all with their numbers."""
    shown = [alone(name) for name in names]
    return shown if len(set(shown)) == len(shown) else [f"{at} {name}" for at, name in enumerate(shown)]


def _row_map(specimen: Specimen, flow: Flow, words: Words, side: str, norm_QT: Floats) -> Figure:
    norm_QT = np.nan_to_num(norm_QT)
    pieces, answers = _told_apart(specimen.pieces), _told_apart(specimen.questions)
    most = [float(row.max() / row.sum()) for row in norm_QT if row.sum() > 0]
    if side == "input":
        title, of = "Gradients of one row, as a map", f"each {words.place}"
    else:
        title = f"Gradients by the {side}, as a map"
        where = "of" if words.place == "node" else "after"
        of = f"the {side}{',' if ',' in side else ''} {where} each {words.place}"
    key = "" if side == "input" else f"-{side.replace(',', '').replace(' ', '-')}"
    return _map(
        f"gradient-map{key}",
        title,
        np.array([np.max(some, axis=0) for some in _together(norm_QT.T)]).T,
        Axis(f"{words.place} that the gradient flows to", categories=tuple(some[0] for some in _together(pieces))),
        Axis("answer", categories=tuple(answers[at] for at in flow.queries)),
        range_=1e-6,
        reading=f"A row is an answer in {specimen.name}; the colour is the norm of the gradient of its loss with "
        f"respect to {of}. Blank: no influence.",
        finding=f"The {words.place} with the largest gradient has {share(min(most))} to {share(max(most))} of an "
        "answer's gradient."
        if most
        else "No gradient flows.",
    )


def _cells(specimen: Specimen, flow: Flow) -> Figure:
    """Cells at their rows and columns."""
    query, norm_T = _shown_query(specimen, flow)
    down, across = specimen.signals["row"].astype(int), specimen.signals["column"].astype(int)
    grid_HW = np.zeros((down.max() + 1, across.max() + 1))
    grid_HW[down, across] = norm_T
    at = int(norm_T.argmax())
    part = float(norm_T[at] / norm_T.sum()) if norm_T.sum() else 0.0
    return Figure(
        "gradient-cells",
        "Gradient of one answer",
        "map",
        Axis("column", categories=tuple(str(w) for w in range(grid_HW.shape[1]))),
        Axis("row", categories=tuple(str(h) for h in range(grid_HW.shape[0]))),
        (),
        reading=f"One grid ({specimen.name}, {specimen.questions[query]}): the colour is the norm of the gradient of "
        "its answer's loss with respect to each cell.",
        finding=f"Row {down[at]}, column {across[at]} has the largest norm: {plain(float(norm_T[at]))}, {share(part)} "
        "of all.",
        grid=Grid(tuple(tuple(map(float, row)) for row in grid_HW), "norm of the gradient"),
    )

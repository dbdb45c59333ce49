"""The figures of the lens `gradient` on rows, each with a sentence computed from its numbers.

Q questions, T places.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from statewise.display import alone, plain, share
from statewise.figures import Axis, Drawing, Figure, Grid, Passage, Series
from statewise.inspection.gradient.flow import Decay
from statewise.inspection.gradient.row_flow import RowFlow, Sides
from statewise.tasks import Floats, Specimen, Words

_WORDS = {"input": "what was read"}
_SHOWN = 400  # pieces of a row
_ACROSS = 40  # places that a map names
_POINTS = 400  # of a curve, and columns of a map: neighbours are put together beyond that
_NOISE = 1e-16  # of the largest norm: below it there is nothing to draw


def reach(sides: Sides, threshold: float, words: Words) -> str:
    """How far a gradient goes, in words."""

    def side(one: Decay, way: str) -> str:
        length = one.length(threshold)
        if length is None:
            return f"as far {way} as enough answers reach ({one.distance[-1]} {words.step}s)"
        return f"up to {length} {words.step}{'' if length == 1 else 's'} {way}"

    way = "down" if words.step == "edge" else "back"
    both = ((sides.before, way), (sides.after, "ahead"))
    return " and ".join(side(one, towards) for one, towards in both if one is not None)


def named(side: str) -> str:
    return _WORDS.get(side, f"the {side}")


def is_state(side: str) -> bool:
    return side.split()[0] == "state"


def decays(sides: Mapping[str, Sides], threshold: float, words: Words) -> list[Drawing]:
    if not sides or not words.distance:
        return []
    series, said = [], []
    for name, one in sides.items():
        points = [] if one.before is None else _points(one.before)
        if one.after is not None:
            points += [(-at, mean, low, high) for at, mean, low, high in _points(one.after) if at]
        least = _NOISE * max(point[1] for point in points)
        kept = [point for point in sorted(points) if point[1] > least]
        if not kept:
            continue
        # On a logarithmic axis there is no 0.
        x, mean, low, high = np.array([np.mean(some, axis=0) for some in _together(kept)]).T
        low = np.clip(low, least, mean)
        series.append(_drawn(f"by {named(name)}", x, mean, low, np.maximum(high, low)))
        said.append(f"{named(name)} counts {reach(one, threshold, words)}")
    return [
        Figure(
            "gradient-distance",
            "How far an answer reaches",
            "line",
            Axis(words.distance, unit="whole"),
            Axis(f"norm of the gradient of the {words.loss}", "log"),
            tuple(series),
            reading="The norm of the gradient of an answer's cost with respect to what lies so far from it, in the "
            "mean over answers; the band holds the middle half.",
            finding=f"Down to {share(threshold)} of the largest, {'; '.join(said)}.",
        )
    ]


def _together(items: Any) -> list[Any]:
    """Neighbours in groups, so that there are not too many."""
    return [items[int(a) : int(b)] for a, b in pairwise(np.linspace(0, len(items), min(len(items), _POINTS) + 1))]


def _drawn(name: str, *columns: Floats) -> Series:
    x, y, low, high = (tuple(map(float, one)) for one in columns)
    return Series(name, x, y, low, high)


def _points(one: Decay) -> list[tuple[float, float, float, float]]:
    return list(zip(map(float, one.distance), one.mean, one.low, one.high))


def shares(rows: Sequence[Specimen], flows: Sequence[RowFlow]) -> dict[str, float]:
    """Of rows that are several texts: how much of an answer's gradient flows to each, in the mean over answers."""
    found = _shares(rows, flows)
    return {name: float(np.mean([share for _, share in several])) for name, several in found.items()}


def _shares(rows: Sequence[Specimen], flows: Sequence[RowFlow]) -> dict[str, list[tuple[int, float]]]:
    """With the question that each share is of."""
    found: dict[str, list[tuple[int, float]]] = {}
    for one, flow in zip(rows, flows):
        for query, norm_T in zip(flow.queries, flow.input_QT):
            for part in one.parts if norm_T.sum() > 0 else ():
                mine = float(norm_T[part.begin : part.end].sum() / norm_T.sum())
                found.setdefault(part.name, []).append((query, mine))
    return found


def parts_sentence(parts: Mapping[str, float]) -> list[str]:
    if not parts:
        return []
    said = " and ".join(f"{share(part)} flows to the {name}" for name, part in parts.items())
    return [f"Of the gradient of an answer, {said} in the mean."]


def parts(rows: Sequence[Specimen], flows: Sequence[RowFlow], words: Words) -> list[Drawing]:
    """Which of several texts an answer leans on, along the answers."""
    series, ends = [], {}
    for name, several in _shares(rows, flows).items():
        by_query: dict[int, list[float]] = {}
        for query, part in several:
            by_query.setdefault(query, []).append(part)
        points = [
            (float(query), float(np.mean(some)), *(float(q) for q in np.quantile(some, [0.25, 0.75])))
            for query, some in sorted(by_query.items())
            if len(some) > 1
        ]
        if len(points) > 1:
            series.append(_drawn(f"the {name}", *np.array(points).T))
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
            "Which of the texts an answer leans on",
            "line",
            Axis(f"{words.question}s answered before", unit="whole"),
            Axis("share of the gradient", limits=(0.0, 1.0)),
            tuple(series),
            reading="How much of the gradient of an answer's cost flows to each text, in the mean over rows; the band "
            "holds the middle half.",
            finding=f"{said[0].upper()}{said[1:]}.",
        )
    ]


def row_drawings(one: Specimen, flow: RowFlow, words: Words) -> list[Drawing]:
    """One row as it stands: cells as a grid, several questions as a map, a text as a text."""
    found: list[Drawing] = []
    if not words.distance:
        found.append(_cells(one, flow, words))
    elif len(flow.queries) > 1:
        found.append(_map(one, flow, words, "input", flow.input_QT))
        found += [_map(one, flow, words, name, norm_QT) for name, norm_QT in _states(flow).items()]
    if words.text or words.place == "node":
        found.append(_text(one, flow, words))
    elif words.distance and len(flow.queries) == 1:
        found.append(_line(one, flow, words))
    return found


def _asked(one: Specimen, flow: RowFlow) -> tuple[int, Floats]:
    """The question that most places have a say in (of several, the middle one), and the norms of its gradient.

    Of texts that are written, the one whose cost would change most: each has more before it than the one before.
    """
    if one.parts:
        at = int(flow.input_QT.sum(1).argmax())
        return flow.queries[at], flow.input_QT[at]
    counted_Q = (~np.isnan(flow.distance_QT)).sum(1)
    best = np.flatnonzero(counted_Q == counted_Q.max())
    at = int(best[len(best) // 2])
    return flow.queries[at], flow.input_QT[at]


def _heaviest(one: Specimen, norm_T: Floats) -> tuple[str, float]:
    at = int(norm_T.argmax())
    return alone(one.pieces[at]), float(norm_T[at] / norm_T.sum()) if norm_T.sum() else 0.0


def heaviest(rows: Sequence[Specimen], flows: Sequence[RowFlow], words: Words) -> str:
    """How much of a gradient lies on one place, in the mean."""
    parts = [float(norm_T.max() / norm_T.sum()) for flow in flows for norm_T in flow.input_QT if norm_T.sum() > 0]
    even = [1 / len(one) for one in rows]
    if not parts:
        return "No gradient flows to anything that was read."
    return (
        f"The one {words.place} that an answer leans on most has {share(float(np.mean(parts)))} of its gradient in the "
        f"mean; spread evenly it would have {share(float(np.mean(even)))}."
    )


def _text(one: Specimen, flow: RowFlow, words: Words) -> Passage:
    question, norm_T = _asked(one, flow)
    between = " " if words.spaced else ""
    total = float(norm_T.sum()) or 1.0
    pieces = tuple((f"{piece}{between}", float(norm / total)) for piece, norm in zip(one.pieces, norm_T))[:_SHOWN]
    piece, part = _heaviest(one, norm_T)
    left = len(one) - len(pieces)
    return Passage(
        "gradient-text",
        "What an answer leans on",
        pieces,
        "share of the gradient",
        reading=f"The row ({one.name}), coloured by how much of the gradient of the cost of one answer "
        f"({one.questions[question]}) flows to each {words.place}.",
        finding=f"{piece!r} has most of it: {share(part)}.",
        missing=(f"{left} more {words.place}s are not shown",) if left else (),
    )


def _line(one: Specimen, flow: RowFlow, words: Words) -> Figure:
    question, norm_T = _asked(one, flow)
    piece, part = _heaviest(one, norm_T)
    at, norms = (tuple(float(np.max(some)) for some in _together(of)) for of in (np.arange(len(one)), norm_T))
    return Figure(
        "gradient-row",
        "What an answer leans on",
        "line",
        Axis(words.place, unit="whole"),
        Axis("norm of the gradient"),
        (Series(one.questions[question], at, norms),),
        reading=f"One row ({one.name}): how much the cost of its answer would change with each {words.place}.",
        finding=f"{words.place.capitalize()} {piece} has most of it: {share(part)}.",
    )


def _states(flow: RowFlow) -> dict[str, Floats]:
    """Norms by place of all states that are read in one direction: who goes on with the row goes on with its map."""
    ahead = {name: norm_QT for name, norm_QT in flow.walked_QT.items() if not name.endswith(" end")}
    found = {name: norm_QT for name, norm_QT in flow.walked_QT.items() if name not in ahead}
    if flow.state_QT is not None:
        joined_QT = flow.state_QT
        for norm_QT in ahead.values():
            joined_QT = np.where(np.isnan(joined_QT), norm_QT, joined_QT)
        return {"state": joined_QT, **found}
    return {**ahead, **found}


def _map(one: Specimen, flow: RowFlow, words: Words, side: str, norm_QT: Floats) -> Figure:
    norm_QT = np.nan_to_num(norm_QT)
    seen = norm_QT[norm_QT > 0]
    high = float(seen.max()) if len(seen) else 1.0
    low = max(float(seen.min()), high * 1e-6) if len(seen) else 0.1
    columns = [np.max(some, axis=0) for some in _together(norm_QT.T)]
    values = tuple(tuple(float(value) if value > 0 else None for value in row) for row in np.array(columns).T)
    is_named = len(one) <= _ACROSS
    across = Axis(
        f"{words.place} that it flows to",
        categories=tuple(f"{at} {alone(piece)}" for at, piece in enumerate(one.pieces)) if is_named else (),
        unit="whole",
    )
    near = [float(row.max() / row.sum()) for row in norm_QT if row.sum() > 0]
    if side == "input":
        title, change = "Gradients of one row, as a map", f"what stands at each {words.place}"
        counts = f"The {words.place} that counts most"
    else:
        title = f"Gradients by {named(side)}, as a map"
        where = "of" if words.place == "node" else "after"
        change = f"{named(side)}{',' if ',' in side else ''} {where} each {words.place}"
        counts = f"The {words.place} whose state counts most"
    key = "" if side == "input" else f"-{side.replace(',', '').replace(' ', '-')}"
    return Figure(
        f"gradient-map{key}",
        title,
        "map",
        across,
        Axis("answer", categories=tuple(f"{at} {alone(one.questions[at])}" for at in flow.queries)),
        (),
        reading=f"A row is an answer in {one.name}; the colour says how much its cost would change with {change}. "
        "Nothing: it cannot matter.",
        finding=f"{counts} has {share(min(near))} to {share(max(near))} of an answer's gradient."
        if near
        else "Nothing flows.",
        grid=Grid(
            values,
            "norm of the gradient",
            x=() if is_named else tuple(float(some[0]) for some in _together(range(len(one)))),
            y=tuple(float(q) for q in flow.queries),
            log=True,
            limits=(low, high) if high > low else None,
        ),
    )


def _cells(one: Specimen, flow: RowFlow, words: Words) -> Figure:
    """Cells at their rows and columns."""
    question, norm_T = _asked(one, flow)
    down, across = one.signals["row"].astype(int), one.signals["column"].astype(int)
    grid_HW = np.zeros((down.max() + 1, across.max() + 1))
    grid_HW[down, across] = norm_T
    at = int(norm_T.argmax())
    part = float(norm_T[at] / norm_T.sum()) if norm_T.sum() else 0.0
    return Figure(
        "gradient-cells",
        "What an answer leans on",
        "map",
        Axis("column", categories=tuple(str(w) for w in range(grid_HW.shape[1]))),
        Axis("row", categories=tuple(str(h) for h in range(grid_HW.shape[0]))),
        (),
        reading=f"One grid ({one.name}, {one.questions[question]}): the colour says how much the cost of its answer "
        "would change with each cell.",
        finding=f"Row {down[at]}, column {across[at]} counts most: {share(part)} of all; its norm is "
        f"{plain(float(norm_T[at]))}.",
        grid=Grid(tuple(tuple(map(float, row)) for row in grid_HW), "norm of the gradient"),
    )

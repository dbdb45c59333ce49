"""Figures of gates, cells and units.

T time steps, U units.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from statewise.display import alone, rough, share
from statewise.figures import Axis, Drawing, Figure, Grid, Passage, Series
from statewise.inspection.gates.statistics import Correlation, Follower, Saturation
from statewise.inspection.gates.trace import Observed, Trace, Units, twins
from statewise.inspection.lens import short_names

_ACROSS = 60  # tokens that a map has room for
_DOWN = 16  # units
_BINS = 40


def _numbered(names: Sequence[str]) -> list[str]:
    """Repeated names are numbered."""
    return [name if name not in names[:at] else f"{name} {names[:at].count(name) + 1}" for at, name in enumerate(names)]


def overview(correlation: Correlation, observed: Sequence[Observed]) -> Figure:
    names = [place.name for place in observed]
    best = [np.abs(correlation.table(name)[:, 0]).max(0) for name in names]
    at = np.unravel_index(int(np.argmax(best)), np.shape(best)) if correlation.features else (0, 0)
    finding = "No feature varies here."
    if correlation.features:
        row, column = int(at[0]), int(at[1])
        closest = f"{names[row]} with {correlation.features[column]}"
        finding = f"The strongest is {closest}, at |r| = {best[row][column]:.2f}."
    return Figure(
        "gates-features",
        "Correlation of units and features",
        "map",
        Axis("feature", "category", categories=tuple(correlation.features)),
        Axis("", "category", categories=tuple(short_names(names))),
        (),
        "A cell is the largest absolute correlation of any unit of the row with the feature of the column.",
        finding,
        grid=Grid(tuple(tuple(float(value) for value in row) for row in best), "largest |r|", limits=(0.0, 1.0))
        if correlation.features
        else None,
    )


def standard(unit_T: Units) -> Units:
    spread = float(unit_T.std())
    return (unit_T - unit_T.mean()) / spread if spread > 1e-9 else np.zeros_like(unit_T)


def _best_by_feature(followers: Sequence[Follower], units: int) -> list[Follower]:
    """The best unit of each of the best features."""
    best = {follower.feature: follower for follower in reversed(followers)}
    return sorted(best.values(), key=lambda follower: -abs(follower.r))[:units]


def passages(
    pieces: Sequence[str],
    kept: Mapping[str, Units],
    followers: Sequence[Follower],
    places: Mapping[str, Observed],
    *,
    units: int,
) -> list[Drawing]:
    """The best unit of each of the best features, on the beginning of the text."""
    drawings: list[Drawing] = []
    for at, follower in enumerate(_best_by_feature(followers, units)):
        value_T = standard(kept[follower.name][: len(pieces), follower.unit])
        place = places[follower.name].place(follower.unit)
        drawings.append(
            Passage(
                f"gates-unit-{at + 1}",
                f"A unit for: {follower.feature}",
                tuple((piece, float(value)) for piece, value in zip(pieces, value_T)),
                "standard deviations from its mean",
                f"Each token is coloured by the value of {place} there: one colour above its mean, the other below.",
                f"{place} follows {follower.feature!r} with r = {follower.r:+.2f}, {rough(follower.ratio)} times the "
                "median of the best unit with a shifted feature.",
                bounds=(0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5),
                signed=True,
            )
        )
    return drawings


def unit_map(
    pieces: Sequence[str],
    kept: Mapping[str, Units],
    followers: Sequence[Follower],
    places: Mapping[str, Observed],
    *,
    place: str,
) -> list[Drawing]:
    if not followers:
        return []
    pieces = pieces[:_ACROSS]
    seen: dict[tuple[str, int], Follower] = {}
    for follower in followers:  # the best first
        seen.setdefault((follower.name, follower.unit), follower)
    ranked = list(seen.values())[:_DOWN]
    rows = [standard(kept[follower.name][: len(pieces), follower.unit]) for follower in ranked]
    steady = min(
        ranked, key=lambda follower: float(np.abs(np.diff(standard(kept[follower.name][:, follower.unit]))).mean())
    )
    return [
        Figure(
            "gates-traces",
            "Units over time",
            "map",
            Axis(place, "category", categories=tuple(alone(piece) for piece in pieces)),
            Axis("", "category", categories=tuple(_numbered([follower.feature for follower in ranked]))),
            (),
            "A row is a unit that follows this feature; the colour is its distance from its mean.",
            f"Of these, {places[steady.name].place(steady.unit)} changes least from one {place} to the next.",
            grid=Grid(
                tuple(tuple(float(value) for value in row) for row in rows),
                "standard deviations from its mean",
                signed=True,
                limits=(-3.0, 3.0),
            ),
        )
    ]


def saturation_figure(saturation: Mapping[str, Saturation]) -> list[Drawing]:
    gates = {name: gate for name, gate in saturation.items() if gate.is_gate}
    if not gates:
        return []
    widest = max(gates, key=lambda name: float(gates[name].at_high_U.mean()))
    series = tuple(
        Series(name, tuple(map(float, gate.at_low_U)), tuple(map(float, gate.at_high_U)))
        for name, gate in gates.items()
    )
    return [
        Figure(
            "gates-saturation",
            "Saturation of gates",
            "scatter",
            Axis("share of the time near 0 (shut)", limits=(0.0, 1.0)),
            Axis("share of the time near 1 (open)", limits=(0.0, 1.0)),
            series,
            "A point is a unit: far from the lower left it acts as a switch; in a corner it never changes.",
            f"{widest} is open most: {share(float(gates[widest].at_high_U.mean()))} of the time.",
        )
    ]


def updates(mean: Mapping[str, NDArray[np.float64]]) -> list[Drawing]:
    """A quantity that is measured before and after each update."""
    drawings: list[Drawing] = []
    for at, (name, after) in enumerate(twins(list(mean))):
        edges = np.unique(np.linspace(0, len(mean[name]), _BINS + 1).astype(int))
        middle = tuple(float(a + b - 1) / 2 for a, b in pairwise(edges))
        curves = {
            word: tuple(float(mean[which][a:b].mean()) for a, b in pairwise(edges))
            for word, which in (("before", name), ("after", after))
        }
        improved = float((mean[after] < mean[name]).mean())
        drawings.append(
            Figure(
                f"gates-update-{at + 1}",
                f"{name}, before and after each update",
                "line",
                Axis("token", unit="whole"),
                Axis(name),
                tuple(Series(word, middle, values) for word, values in curves.items()),
                "Each point is a mean over neighbouring tokens; where `after` is lower, the update reduces it.",
                f"The update lowers it at {share(improved)} of the tokens.",
            )
        )
    return drawings


_SHOWN = 400  # places of a curve


def unit_curves(
    trace: Trace,
    kept: Mapping[str, Units],
    followers: Sequence[Follower],
    places: Mapping[str, Observed],
    *,
    units: int,
) -> list[Drawing]:
    """The best unit of each of the best features, over the first row."""
    length = min(trace.first, _SHOWN)
    drawings: list[Drawing] = []
    for at, follower in enumerate(_best_by_feature(followers, units)):
        unit_T = standard(kept[follower.name][:length, follower.unit])
        feature_T = standard(trace.features[follower.feature][:length])
        place = places[follower.name].place(follower.unit)
        x = tuple(float(t) for t in range(length))
        sign = "" if follower.r > 0 else ", upside down"
        drawings.append(
            Figure(
                f"gates-unit-{at + 1}",
                f"A unit for: {follower.feature}",
                "line",
                Axis(f"{trace.place} of the first row", unit="whole"),
                Axis("standard deviations from the mean of this row"),
                (
                    Series(follower.feature, x, tuple(map(float, feature_T))),
                    Series(
                        f"{place}{sign}", x, tuple(float(value) * (1 if follower.r > 0 else -1) for value in unit_T)
                    ),
                ),
                "Both are standardised; where the curves agree, the unit follows the feature.",
                f"{place} follows {follower.feature!r} with r = {follower.r:+.2f} over all rows, "
                f"{rough(follower.ratio)} times the median of the best unit with a shifted feature.",
            )
        )
    return drawings

"""How the entries learnt: the same curves against steps, time and FLOPs."""

from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import NamedTuple

from statewise.comparison.report.results import WIDE, Results, better, called
from statewise.comparison.statistics import Better
from statewise.comparison.trial import Found, Point
from statewise.figures.figure import FORMATS, Axis, Figure, Series, Unit
from statewise.figures.number import plain

_LOG = ", and the lower axis is a logarithm, which has no place for the moment before training"
_STEEP = ", and the upright axis is a logarithm"
_EARLY = 0.25  # of a curve, its first fall
_CUT = 1.5  # how much higher the whole must be for that to be cut off


class _Drawn(NamedTuple):
    """What a curve is of: the study's metric, or another figure that training looked at."""

    name: str  # for files; empty of the metric itself
    words: str
    better: Better
    of: Callable[[Found], list[Point]]


def learning_curves(results: Results) -> list[Figure]:
    """The metric against steps, time and FLOPs; what else was looked at on the way, against steps."""
    own = _Drawn("", results.metric, results.study.better, lambda one: one.curve)
    others = [_Drawn(f"-{name}", called(name), better(name), partial(_watched, name)) for name in results.watched()]
    figures = [_curves(results, one, "steps", "steps", "whole", lambda point: float(point.step)) for one in others]
    if not any(one.curve for runs in results.final.values() for one in runs):
        return figures
    return [
        _curves(results, own, "steps", "steps", "whole", lambda point: float(point.step)),
        _curves(results, own, "time", "training time (seconds)", "seconds", lambda point: point.seconds),
        _curves(results, own, "flops", "training FLOPs", "count", lambda point: point.flops),
        *figures,
    ]


def _watched(name: str, one: Found) -> list[Point]:
    return one.watched.get(name, [])


def _curves(
    results: Results, drawn: _Drawn, name: str, label: str, unit: Unit, place: Callable[[Point], float]
) -> Figure:
    series, missing, bare = [], [], []
    for entry in results.done:
        one = _mean_curve([drawn.of(run) for run in results.final[entry]], entry, place)
        if not one.x:
            bare.append(entry)
        elif name != "steps" and not any(value > 0 for value in one.x):
            missing.append(f"{entry} is not drawn: it has no {label.partition(' (')[0]} to be placed by.")
        else:
            series.append(one)
    if bare:
        missing.append(f"No learning curve: {', '.join(bare)}.")
    spread = [value for one in series for value in one.x if value > 0]
    last = [one.x[-1] for one in series]
    log = name != "steps" and bool(spread) and max(last) > WIDE * min(last)
    if log:
        series = [_positive(one) for one in series]
    steep = _steep(series, drawn.better)
    limits = None if steep else _limits(series, drawn.better)
    beyond = "above" if drawn.better == "lower" else "below"
    cut = f"; what lies {beyond} the frame, the beginning, is cut off" if limits else ""
    axis = label.partition(" (")[0]
    reading = (
        f"Each curve is the mean over seeds, its band goes from the lowest seed to the highest; {drawn.better} is "
    )
    return Figure(
        name=f"learning{drawn.name}-{name}",
        title=f"{drawn.words[:1].upper()}{drawn.words[1:]} along training"
        if drawn.name
        else f"Learning against {axis}",
        kind="line",
        x=Axis(label, scale="log" if log else "linear", unit=unit),
        y=Axis(f"validation {drawn.words}", scale="log" if steep else "linear", limits=limits),
        series=tuple(series),
        reading=f"{reading}better{cut}{_STEEP if steep else ''}{_LOG if log else ''}.{_quick(results, drawn)}",
        finding=_finding(series, axis, unit, drawn.better),
        missing=tuple(missing),
    )


def _steep(series: list[Series], better: Better) -> bool:
    """Whether errors fall so far that only a logarithm shows where they end."""
    seen = [value for one in series for value in (*one.y, *one.low)]
    return better == "lower" and bool(seen) and min(seen) > 0 and max(seen) > WIDE * min(seen)


def _quick(results: Results, drawn: _Drawn) -> str:
    """Said where it is so: no moment of any curve has the figure that the table has of its run."""
    runs = [one for runs in results.final.values() for one in runs if len(one.curve) > 1]
    figure = results.study.metric
    if drawn.name or not runs or any(point.figure == one.figures[figure] for one in runs for point in one.curve):
        return ""
    return " Validation takes a quick look at some of the held-out data, so no curve ends just where the table says."


def _mean_curve(runs: list[list[Point]], entry: str, place: Callable[[Point], float]) -> Series:
    """At each step that all seeds with a curve were evaluated at; by the clock, seeds come to other steps, and are
    read off between their evaluations."""
    curves = [run for run in runs if run]
    shared = set.intersection(*({point.step for point in curve} for curve in curves)) if curves else set()
    if curves and len(shared) == min(map(len, curves)):
        groups = [[next(p for p in curve if p.step == step) for curve in curves] for step in sorted(shared)]
        x = [fmean(map(place, group)) for group in groups]
        figures = [[point.figure for point in group] for group in groups]
    else:
        x = _common_places(curves, place)
        figures = [[_read_off(curve, place, at) for curve in curves] for at in x]
    return Series(
        name=entry,
        x=tuple(x),
        y=tuple(map(fmean, figures)),
        low=tuple(map(min, figures)),
        high=tuple(map(max, figures)),
        entry=entry,
    )


def _common_places(curves: list[list[Point]], place: Callable[[Point], float]) -> list[float]:
    """Those of the curve with the fewest points, as far as all reach."""
    if not curves:
        return []
    first, last = max(place(curve[0]) for curve in curves), min(place(curve[-1]) for curve in curves)
    inside = {place(point) for point in min(curves, key=len) if first <= place(point) <= last}
    return sorted({*inside, last}) if first <= last else []


def _read_off(curve: list[Point], place: Callable[[Point], float], at: float) -> float:
    """On the line between two evaluations."""
    before = max((point for point in curve if place(point) <= at), key=place)
    after = min((point for point in curve if place(point) >= at), key=place)
    width = place(after) - place(before)
    return (
        before.figure if width == 0 else before.figure + (after.figure - before.figure) * (at - place(before)) / width
    )


def _positive(one: Series) -> Series:
    """Without the places that a logarithm does not have: the moment before training."""
    kept = [at for at, value in enumerate(one.x) if value > 0]
    x, y, low, high = (tuple(values[at] for at in kept) for values in (one.x, one.y, one.low, one.high))
    return one._replace(x=x, y=y, low=low, high=high)


def _limits(series: list[Series], better: str) -> tuple[float, float] | None:
    """The frame without the first fall, beside which all that follows would look flat."""
    sign = 1 if better == "lower" else -1
    curves = [one for one in series if len(one.x) > 3]
    if not curves:
        return None
    later = []
    for one in curves:
        early = _EARLY * (one.x[-1] - one.x[0]) + one.x[0]
        later.append(max(sign * y for x, y in zip(one.x, one.y) if x >= early))
    ends = [sign * one.y[-1] for one in series]
    worst, best = max(*later, *ends), min(sign * y for one in series for y in (*one.low, *one.high))
    highest = max(sign * y for one in series for y in one.y)
    if worst <= best or highest - best < _CUT * (worst - best):
        return None
    air = 0.06 * (worst - best)
    low, high = sorted((sign * (best - air), sign * (worst + air)))
    return low, high


def _finding(series: list[Series], axis: str, unit: Unit, better: str) -> str:
    if not series:
        return "No entry has a curve to draw."
    series = [one for one in series if len(one.x) > 1] or series  # whoever counts does not learn along the way
    best = (min if better == "lower" else max)(series, key=lambda one: one.y[-1])
    word = {"steps": " steps", "training FLOPs": " FLOPs"}.get(axis, "")
    lowest = f"{best.name} ends best, at {plain(best.y[-1])} after {FORMATS[unit](best.x[-1])}{word}"
    others = [one for one in series if one is not best]
    if not others:
        return f"{lowest}."
    worst = (max if better == "lower" else min)(one.y[-1] for one in others)
    reached = next((x for x, y in zip(best.x, best.y) if (y <= worst if better == "lower" else y >= worst)), None)
    if reached is None:
        return f"{lowest}."
    early = f"{FORMATS[unit](reached)}{word}"
    return f"{lowest}; it was already as good as the last of them ends ({plain(worst)}) after {early}."

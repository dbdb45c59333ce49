"""Learning curves against steps, time and FLOPs."""

from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import NamedTuple

from statewise.comparison.report.results import WIDE, Results
from statewise.comparison.report.verdict import few, listed, named
from statewise.comparison.statistics import Better
from statewise.comparison.trial import Found, Point
from statewise.display import plain
from statewise.figures import FORMATS, Axis, Figure, Series, Unit
from statewise.tasks import metric_of

_LOG = "; the horizontal axis is logarithmic, so the value before training is not shown"
_STEEP = "; the vertical axis is logarithmic"
_EARLY = 0.25  # share of a curve that counts as its first fall
_CUT = 1.5  # how much taller the whole must be for the first fall to be cut off


class _Drawn(NamedTuple):
    """What a curve shows: the study's metric, or another one of the validation."""

    name: str  # for files; empty of the metric itself
    words: str
    better: Better
    of: Callable[[Found], list[Point]]


def learning_curves(results: Results) -> list[Figure]:
    """The metric against time, steps and FLOPs (first against what the budget limits); other metrics against steps."""
    own = _Drawn("", results.metric, results.study.better, lambda run: run.curve)
    watched = [metric_of(name) for name in results.watched()]
    others = [
        _Drawn(f"-{metric.name}", metric.label, metric.better, partial(_watched, metric.name)) for metric in watched
    ]
    figures = [_curves(results, other, "steps", "steps", "whole", lambda point: float(point.step)) for other in others]
    if not any(run.curve for runs in results.final.values() for run in runs):
        return figures
    by_steps = _curves(results, own, "steps", "steps", "whole", lambda point: float(point.step))
    by_time = _curves(results, own, "time", "training time (seconds)", "seconds", lambda point: point.seconds)
    by_flops = _curves(results, own, "flops", "training FLOPs", "count", lambda point: point.flops)
    timed = any(kind == "seconds" for kind, _ in results.study.budget.held())
    return [*((by_time, by_steps) if timed else (by_steps, by_time)), by_flops, *figures]


def _watched(name: str, run: Found) -> list[Point]:
    return run.watched.get(name, [])


def _curves(
    results: Results, drawn: _Drawn, name: str, label: str, unit: Unit, place: Callable[[Point], float]
) -> Figure:
    series, missing, bare = [], [], []
    for entry in results.done:
        curve = _mean_curve([drawn.of(run) for run in results.final[entry]], entry, place)
        if not curve.x:
            bare.append(entry)
        elif name != "steps" and not any(value > 0 for value in curve.x):
            missing.append(f"{named(entry)} has no {label.partition(' (')[0]}.")
        else:
            series.append(curve)
    if bare:
        missing.append(f"No learning curve: {listed(few(bare))}.")
    spread = [value for curve in series for value in curve.x if value > 0]
    last = [curve.x[-1] for curve in series]
    log = name != "steps" and bool(spread) and max(last) > WIDE * min(last)
    if log:
        series = [_positive(curve) for curve in series]
    steep = _steep(series, drawn.better)
    limits = None if steep else _limits(series, drawn.better)
    cut = "; the start of training is cut off" if limits else ""
    axis = label.partition(" (")[0]
    reading = f"Mean over seeds, band: lowest to highest seed; {drawn.better} is better"
    return Figure(
        name=results.figure_name(f"learning{drawn.name}-{name}"),
        title=f"{drawn.words[:1].upper()}{drawn.words[1:]} during training"
        if drawn.name
        else f"Learning curves: {results.metric} against {axis}",
        kind="line",
        x=Axis(label, scale="log" if log else "linear", unit=unit),
        y=Axis(f"validation {drawn.words}", scale="log" if steep else "linear", limits=limits),
        series=tuple(series),
        reading=f"{reading}{cut}{_STEEP if steep else ''}{_LOG if log else ''}.{_partial(results, drawn)}",
        finding=_finding(series, axis, unit, drawn.better),
        missing=tuple(missing),
    )


def _steep(series: list[Series], better: Better) -> bool:
    """Whether errors fall so far that only a logarithmic axis shows where they end."""
    seen = [value for curve in series for value in (*curve.y, *curve.low)]
    return better == "lower" and bool(seen) and min(seen) > 0 and max(seen) > WIDE * min(seen)


def _partial(results: Results, drawn: _Drawn) -> str:
    """A note where no point of any curve equals the final score of its run."""
    runs = [run for runs in results.final.values() for run in runs if len(run.curve) > 1]
    figure = results.study.metric
    if drawn.name or not runs or any(point.figure == run.figures[figure] for run in runs for point in run.curve):
        return ""
    return (
        " During training only part of the held-out data is scored, so curves end near the table's scores, not at them."
    )


def _mean_curve(runs: list[list[Point]], entry: str, place: Callable[[Point], float]) -> Series:
    """At each step at which all seeds were evaluated. Seeds trained for a time reach different steps: they are
    interpolated between their evaluations."""
    curves = [run for run in runs if run]
    shared = set.intersection(*({point.step for point in curve} for curve in curves)) if curves else set()
    if curves and len(shared) == min(map(len, curves)):
        groups = [[next(p for p in curve if p.step == step) for curve in curves] for step in sorted(shared)]
        x = [fmean(map(place, group)) for group in groups]
        figures = [[point.figure for point in group] for group in groups]
    else:
        x = _common_places(curves, place)
        figures = [[_interpolated(curve, place, at) for curve in curves] for at in x]
    return Series(
        name=entry,
        x=tuple(x),
        y=tuple(map(fmean, figures)),
        low=tuple(map(min, figures)),
        high=tuple(map(max, figures)),
        entry=entry,
    )


def _common_places(curves: list[list[Point]], place: Callable[[Point], float]) -> list[float]:
    """Places of the curve with the fewest points, inside the range that all curves have."""
    if not curves:
        return []
    first, last = max(place(curve[0]) for curve in curves), min(place(curve[-1]) for curve in curves)
    inside = {place(point) for point in min(curves, key=len) if first <= place(point) <= last}
    return sorted({*inside, last}) if first <= last else []


def _interpolated(curve: list[Point], place: Callable[[Point], float], at: float) -> float:
    """Linearly, between two evaluations."""
    before = max((point for point in curve if place(point) <= at), key=place)
    after = min((point for point in curve if place(point) >= at), key=place)
    width = place(after) - place(before)
    return (
        before.figure if width == 0 else before.figure + (after.figure - before.figure) * (at - place(before)) / width
    )


def _positive(series: Series) -> Series:
    """Without what a logarithmic axis cannot show: the value before training."""
    kept = [at for at, value in enumerate(series.x) if value > 0]
    x, y, low, high = (tuple(values[at] for at in kept) for values in (series.x, series.y, series.low, series.high))
    return series._replace(x=x, y=y, low=low, high=high)


def _limits(series: list[Series], better: str) -> tuple[float, float] | None:
    """The vertical range without the first fall, beside which the rest would look flat."""
    sign = 1 if better == "lower" else -1
    curves = [curve for curve in series if len(curve.x) > 3]
    if not curves:
        return None
    later = []
    for curve in curves:
        early = _EARLY * (curve.x[-1] - curve.x[0]) + curve.x[0]
        later.append(max(sign * y for x, y in zip(curve.x, curve.y) if x >= early))
    ends = [sign * curve.y[-1] for curve in series]
    worst, best = max(*later, *ends), min(sign * y for curve in series for y in (*curve.low, *curve.high))
    highest = max(sign * y for curve in series for y in curve.y)
    if worst <= best or highest - best < _CUT * (worst - best):
        return None
    air = 0.06 * (worst - best)
    low, high = sorted((sign * (best - air), sign * (worst + air)))
    return low, high


def _finding(series: list[Series], axis: str, unit: Unit, better: str) -> str:
    if not series:
        return "No entry has a learning curve."
    series = [curve for curve in series if len(curve.x) > 1] or series  # count models have one point
    best = (min if better == "lower" else max)(series, key=lambda curve: curve.y[-1])
    word = {"steps": " steps", "training FLOPs": " FLOPs"}.get(axis, "")
    lowest = f"{named(best.name)} ends best, at {plain(best.y[-1])} after {FORMATS[unit](best.x[-1])}{word}"
    others = [curve for curve in series if curve is not best]
    if not others:
        return f"{lowest}."
    last = (max if better == "lower" else min)(others, key=lambda other: other.y[-1])
    worst = last.y[-1]
    reached = next((x for x, y in zip(best.x, best.y) if (y <= worst if better == "lower" else y >= worst)), None)
    if reached is None:
        return f"{lowest}."
    early = f"{FORMATS[unit](reached)}{word}"
    return f"{lowest}; by {early} it had passed the final score of the worst, {named(last.name)} ({plain(worst)})."

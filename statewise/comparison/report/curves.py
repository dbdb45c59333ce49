"""How the entries learnt: the same curves against steps, time and FLOPs."""

from collections.abc import Callable
from statistics import fmean

from statewise.comparison.report.figure import FORMATS, Axis, Figure, Series, Unit
from statewise.comparison.report.number import plain
from statewise.comparison.report.results import Results
from statewise.comparison.trial import Found, Point

_LOG = ", and the lower axis is a logarithm, which has no place for the moment before training"
_EARLY = 0.25  # of a curve, its first fall
_CUT = 1.5  # how much higher the whole must be for that to be cut off
_WIDE = 8.0  # how far values may lie apart before their axis is a logarithm


def learning_curves(results: Results) -> list[Figure]:
    return [
        _curves(results, "steps", "steps", "whole", lambda point: float(point.step)),
        _curves(results, "time", "training time (seconds)", "seconds", lambda point: point.seconds),
        _curves(results, "flops", "training FLOPs", "count", lambda point: point.flops),
    ]


def _curves(results: Results, name: str, label: str, unit: Unit, place: Callable[[Point], float]) -> Figure:
    series, missing = [], []
    for entry in results.done:
        one = _mean_curve(results.final[entry], entry, place)
        if not one.x:
            missing.append(f"{entry} has no learning curve, or its seeds share no step.")
        elif name != "steps" and not any(value > 0 for value in one.x):
            missing.append(f"{entry} is not drawn: it has no {label.partition(' (')[0]} to be placed by.")
        else:
            series.append(one)
    spread = [value for one in series for value in one.x if value > 0]
    last = [one.x[-1] for one in series]
    log = name != "steps" and bool(spread) and max(last) > _WIDE * min(last)
    if log:
        series = [_positive(one) for one in series]
    better = results.study.better
    limits = _limits(series, better)
    cut = (
        f"; what lies {'above' if better == 'lower' else 'below'} the frame, the beginning, is cut off"
        if limits
        else ""
    )
    return Figure(
        name=f"learning-{name}",
        title=f"Learning against {label.partition(' (')[0]}",
        kind="line",
        x=Axis(label, scale="log" if log else "linear", unit=unit),
        y=Axis(f"validation {results.metric}", limits=limits),
        series=tuple(series),
        reading=f"Each curve is the mean over seeds, its band goes from the lowest seed to the highest; {better} is "
        f"better{cut}{_LOG if log else ''}.",
        finding=_finding(series, label.partition(" (")[0], unit, better),
        missing=tuple(missing),
    )


def _mean_curve(runs: list[Found], entry: str, place: Callable[[Point], float]) -> Series:
    """At each step that all seeds with a curve were evaluated at."""
    runs = [run for run in runs if run.curve]
    shared = set.intersection(*({point.step for point in run.curve} for run in runs)) if runs else set()
    by_step = {step: [next(p for p in run.curve if p.step == step) for run in runs] for step in sorted(shared)}
    points = list(by_step.values())
    return Series(
        name=entry,
        x=tuple(fmean(map(place, group)) for group in points),
        y=tuple(fmean(point.figure for point in group) for group in points),
        low=tuple(min(point.figure for point in group) for group in points),
        high=tuple(max(point.figure for point in group) for group in points),
        entry=entry,
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
    best = (min if better == "lower" else max)(series, key=lambda one: one.y[-1])
    word = {"steps": " steps", "training FLOPs": " FLOPs"}.get(axis, "")
    lowest = f"{best.name} ends best, at {plain(best.y[-1])} after {FORMATS[unit](best.x[-1])}{word}"
    others = [one for one in series if one is not best and len(one.x) > 1]
    if not others:
        return f"{lowest}."
    worst = (max if better == "lower" else min)(one.y[-1] for one in others)
    reached = next((x for x, y in zip(best.x, best.y) if (y <= worst if better == "lower" else y >= worst)), None)
    if reached is None:
        return f"{lowest}."
    early = f"{FORMATS[unit](reached)}{word}"
    return f"{lowest}; it was already as good as the last of them ends ({plain(worst)}) after {early}."

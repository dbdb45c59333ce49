"""Errors of forecasts, by the steps ahead and by the place in the series.

W windows, H time steps ahead.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from statewise.display import plain, rough, share, whole
from statewise.figures import Axis, Column, Drawing, Figure, Series, table_of
from statewise.inspection.finding import Finding, Named
from statewise.inspection.surprise.measure import Rival
from statewise.tasks import Courses, Floats, Specimens

_STRETCHES = 24  # of time


def found_in_forecasts(
    name: str, specimens: Specimens, forecasts: Courses, rival: Rival | None, *, worst: int
) -> Finding:
    horizon = forecasts.loss_WH.shape[1]
    mean = float(np.nanmean(forecasts.loss_WH))
    naive = None if forecasts.naive_WH is None else float(np.nanmean(forecasts.naive_WH))
    curve_H, half_H = _mean_and_half(forecasts.loss_WH)
    stretches = _stretches(forecasts)
    figures: list[Drawing] = []
    if horizon > 1:
        figures.append(_ahead(forecasts, curve_H, half_H))
    figures.append(_position(forecasts, stretches))
    sentences = [_whole(name, specimens, forecasts, mean, naive), _accumulated(forecasts, curve_H, half_H)]
    if rival is not None:
        sentences.insert(0, rival.sentence(name, forecasts.loss))
    data: dict[str, Any] = {
        "windows": len(forecasts.loss_WH),
        "horizon": horizon,
        "loss": forecasts.loss,
        "mean": mean,
        "repeat_last": naive,
        "ahead": [float(value) for value in curve_H],
        "stretches": [{"origin": at, "mean": value, "half": half} for at, value, half in stretches],
    }
    if rival is not None:
        data["against"] = rival.as_dict()
    return Finding(
        "surprise",
        "Surprise",
        name,
        tuple(sentence for sentence in sentences if sentence),
        tuple(figures),
        (_worst(specimens, forecasts, worst),),
        data,
    )


def _mean_and_half(loss_WH: Floats) -> tuple[Floats, Floats]:
    """Of each step ahead. Neighbouring windows overlap, so only windows a horizon apart count as independent."""
    count = max(1.0, len(loss_WH) / loss_WH.shape[1])
    return np.nanmean(loss_WH, 0), 1.96 * np.nanstd(loss_WH, 0) / np.sqrt(count)


def _stretches(forecasts: Courses) -> list[tuple[float, float, float]]:
    """Windows in groups by where they begin: the mean origin, the mean error, and half of its interval."""
    order = np.argsort(forecasts.origin_W, kind="stable")
    apart = max(1, forecasts.loss_WH.shape[1])
    made = []
    for some in np.array_split(order, min(_STRETCHES, len(order))):
        loss_W = np.nanmean(forecasts.loss_WH[some], 1)
        half = 1.96 * float(np.nanstd(loss_W)) / max(1.0, len(some) / apart) ** 0.5
        made.append((float(forecasts.origin_W[some].mean()), float(np.nanmean(loss_W)), half))
    return made


def _whole(name: str, specimens: Specimens, forecasts: Courses, mean: float, naive: float | None) -> str:
    windows, horizon = forecasts.loss_WH.shape
    what = f"{windows:,} forecasts of {horizon} time steps" if horizon > 1 else f"{windows:,} forecasts of one step"
    said = f"{name} has a {forecasts.loss} of {plain(mean)} in the mean over {what}, on {specimens.source}"
    if naive is None or naive == 0:
        return f"{said}."
    return f"{said}: {rough(mean / naive)} times that of repeating the last value ({plain(naive)})."


def _accumulated(forecasts: Courses, curve_H: Floats, half_H: Floats) -> str:
    if len(curve_H) < 2:
        return ""
    first, last = float(curve_H[0]), float(curve_H[-1])
    times = f"{rough(last / first)} times" if first > 0 else "more than"
    said = f"{len(curve_H)} steps ahead the error is {plain(last)}, {times} that of one ahead ({plain(first)})"
    if forecasts.naive_WH is None:
        return f"{said}."
    beaten = np.nanmean(forecasts.naive_WH, 0) > curve_H
    lost = next((at + 1 for at, better in enumerate(beaten) if not better), None)
    if lost is None:
        return f"{said}; it stays below that of repeating the last value."
    return f"{said}; {lost} ahead, repeating the last value is as good or better."


def _ahead(forecasts: Courses, curve_H: Floats, half_H: Floats) -> Figure:
    steps = tuple(float(at + 1) for at in range(len(curve_H)))
    series = [Series.with_band("model", steps, curve_H, half_H, least=0.0)]
    if forecasts.naive_WH is not None:
        series.append(Series("repeating the last value", steps, tuple(np.nanmean(forecasts.naive_WH, 0).tolist())))
    return Figure(
        "surprise-ahead",
        "Error by steps ahead",
        "line",
        Axis("time steps ahead", unit="whole"),
        Axis(forecasts.loss),
        tuple(series),
        reading="Mean error over windows at each number of steps ahead, in units of the training data's standard "
        "deviation; the band is a 95 % interval.",
        finding=_accumulated(forecasts, curve_H, half_H),
    )


def _position(forecasts: Courses, stretches: Sequence[tuple[float, float, float]]) -> Figure:
    at, means, halves = zip(*stretches)
    worst = max(stretches, key=lambda stretch: stretch[1])
    usual = float(np.median(means))
    ratio = worst[1] / usual if usual > 0 else float("inf")
    return Figure(
        "surprise-position",
        "Error by place in the series",
        "line",
        Axis("row of the series that is forecast first", unit="whole"),
        Axis(f"{forecasts.loss}, mean over the horizon"),
        (Series.with_band("model", at, means, halves),),
        reading="Windows in groups by where they begin; the band is a 95 % interval. A rise to the right means that "
        "the series has moved away from the training data.",
        finding=f"It is highest about row {whole(worst[0])}: {plain(worst[1])}, {rough(ratio)} times the median.",
    )


def _worst(specimens: Specimens, forecasts: Courses, most: int) -> Named:
    loss_W = np.nanmean(forecasts.loss_WH, 1) if len(forecasts.loss_WH) else np.zeros(0)
    order = np.argsort(-np.nan_to_num(loss_W, nan=-np.inf))[:most]
    table = table_of(
        order.tolist(),
        (Column("series", "series"), lambda at: int(forecasts.row_W[at]), whole),
        (Column("origin", "row that is forecast first"), lambda at: int(forecasts.origin_W[at]), whole),
        (Column("loss", forecasts.loss), lambda at: float(loss_W[at]), plain),
        (Column("above", "worse than", text=True), lambda at: share(float((loss_W < loss_W[at]).mean())), None),
    )
    return Named("surprise-worst", "The worst forecasts", "In the order of their error.", table)

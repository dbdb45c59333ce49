"""Pictures of forecasts: SVG by ourselves, PNG and PDF by matplotlib where it is installed.

T time, H steps ahead.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from statewise.data import Span
from statewise.disk import write
from statewise.figures import Axis, Figure, Series, csv_text, paint, svg_file
from statewise.specs import ForecastingSpec, UserError, optional
from statewise.tasks.answers import Course
from statewise.tasks.forecasting.ahead import Ahead
from statewise.tasks.forecasting.answer import timestamp_of
from statewise.tasks.forecasting.examples import read_parts

_ENDINGS = (".svg", ".png", ".pdf", ".csv")
_ERRORS_READ = (
    "Lower is better. Where the curve of a simple rule is below the model's, that rule is better so far ahead."
)
_FORECAST_READ = (
    "Right of 0 the model has read nothing. An interval should contain the share of the truth that it names."
)
_PAST = 2  # horizons of past values that an example shows
_COLOURS = {"truth": 7, "forecast": 0}


@dataclass(frozen=True)
class Shown:
    """What a picture shows: errors against the distance, or a forecast against the truth."""

    title: str
    errors: Mapping[str, Sequence[float]] = field(default_factory=dict)
    time: Any = None
    truth: Any = None
    ahead_time: Any = None
    mean: Any = None
    quantiles: Mapping[float, Any] = field(default_factory=dict)
    unit: str = ""  # what is forecast


def held_out_forecast(
    forecast: Callable[..., Ahead],
    span: Span,
    *,
    spec: ForecastingSpec,
    part: str,
    channel: str | None,
    origin: int | None,
) -> Shown:
    """A forecast inside a held-out span, with some of what came before it."""
    channels, horizon = span.series.channels, spec.forecast.horizon
    context = spec.forecast.context if isinstance(spec.forecast.context, int) else 4 * horizon
    at = max(span.begin, min(span.reach + context, span.end - 1)) if origin is None else origin
    if not 0 < at < span.end:
        raise UserError(f"origin = {at} is not a row of the {part}, which ends at {span.end}")
    channel = channel or channels[0]
    if channel not in channels:
        raise UserError(f"there is no channel {channel!r}", fix=f"choose one of {', '.join(channels)}")
    ahead = forecast(span.series, origin=at, horizon=min(horizon, span.end - at))
    column = channels.index(channel)
    rows = slice(max(0, at - max(4 * horizon, min(context, 8 * horizon))), at + len(ahead.time_H))
    return Shown(
        title=f"{spec.name}: {channel}, {part}",
        unit=channel,
        time=span.series.time_T[rows],
        truth=span.series.values_TC[rows, column],
        ahead_time=ahead.time_H,
        mean=ahead.mean_HC[:, column],
        quantiles={q: ahead.quantile_HCQ[:, column, i] for i, q in enumerate(ahead.levels)},
    )


def check_path(path: Path) -> None:
    """Refuse, before any work, a file that could not be written."""
    if path.suffix not in _ENDINGS:
        raise UserError(f"{str(path)!r} is not a known format of pictures", fix=f"name it {', '.join(_ENDINGS)}")
    if not path.parent.is_dir():
        raise UserError(f"{str(path)!r} cannot be written", fix="name a file in a folder that exists")
    if path.suffix in (".png", ".pdf"):
        optional("matplotlib", extra="plots", needed_by=f"{path.suffix} files")


def save_plot(path: Path, shown: Shown) -> Path:
    """A picture, or as `.csv` the numbers in it."""
    check_path(path)
    if path.suffix == ".csv":
        write(path, csv_text(_numbers(shown)).replace("\r\n", "\n"))
        return path
    figure = _errors(shown) if shown.errors else _forecast(shown)
    if path.suffix == ".svg":
        write(path, svg_file(figure, colours=_COLOURS, width=860))
    else:
        paint(figure, path)
    return path


def _numbers(shown: Shown) -> Iterator[Sequence[Any]]:
    """Rows with their header; what is not known at a time step stays empty."""
    if shown.errors:
        yield ["steps ahead", *shown.errors]
        for step, values in enumerate(zip(*shown.errors.values(), strict=True), start=1):
            yield [step, *values]
        return
    levels = sorted(shown.quantiles)
    yield ["time", "truth", "forecast", *(f"quantile {level:g}" for level in levels)]
    ahead = {str(timestamp): step for step, timestamp in enumerate(shown.ahead_time)}
    for timestamp, truth in zip(shown.time, shown.truth, strict=True):
        at = ahead.get(str(timestamp))
        told = [] if at is None else [shown.mean[at], *(shown.quantiles[level][at] for level in levels)]
        yield [timestamp, "" if np.isnan(truth) else truth, *("" if np.isnan(one) else one for one in told)]


def _errors(shown: Shown) -> Figure:
    series = tuple(
        Series(name, tuple(range(1, len(curve) + 1)), tuple(map(float, curve))) for name, curve in shown.errors.items()
    )
    top = max(max(item.y) for item in series)
    y = Axis("mean squared error (scaled)", limits=(0.0, 1.05 * top or 1.0))
    best = min(series, key=lambda curve: sum(curve.y))
    finding = f"{best.name} has the smallest error in the mean."
    return Figure("error", shown.title, "line", Axis("steps ahead", unit="whole"), y, series, _ERRORS_READ, finding)


def _forecast(shown: Shown) -> Figure:
    """Along x, time steps after the last value that was read."""
    origin = len(shown.time) - len(shown.ahead_time) - 1
    last = timestamp_of(shown.time[max(origin, 0)])
    ahead = np.arange(1, len(shown.ahead_time) + 1)
    series = [_known("truth", np.arange(len(shown.time)) - origin, shown.truth, entry="truth")]
    levels = sorted(shown.quantiles)
    for low in levels:
        high = next((q for q in levels if low < 0.5 and abs(q - (1 - low)) < 1e-9), None)
        if high is not None and not np.isnan(shown.quantiles[low]).all():
            bounds = {"low": shown.quantiles[low], "high": shown.quantiles[high]}
            series.append(_known(f"{high - low:.0%} interval", ahead, shown.mean, **bounds, entry="forecast"))
    series.append(_known("forecast", ahead, shown.mean, entry="forecast"))  # last, and so above its intervals
    x = Axis(f"time steps after {last}", unit="whole")
    finding = f"The last value that was read is that of {last}; {len(ahead)} steps are forecast."
    y = Axis(f"{shown.unit} (as in the data)")
    return Figure("forecast", shown.title, "line", x, y, tuple(series), _FORECAST_READ, finding)


def _known(name: str, x: Any, y: Any, low: Any = None, high: Any = None, *, entry: str) -> Series:
    """A series without what is missing."""
    given = [np.asarray(one, dtype=np.float64) for one in (x, y, low, high) if one is not None]
    there = ~np.isnan(given).any(0)
    x, y, *bounds = (tuple(values[there].tolist()) for values in given)
    low, high = bounds or ((), ())
    return Series(name, x, y, low, high, entry)


def example_course(forecast: Callable[..., Ahead], spec: ForecastingSpec) -> Course | None:
    """At the first held-out origin with a whole past: what was forecast, and what came."""
    context, horizon = spec.forecast.context, spec.forecast.horizon
    if isinstance(context, str):
        return None
    parts = read_parts(spec.data, seed=spec.seed)
    for span in parts.test or parts.validation:
        origin = max(span.begin, span.reach + context)
        if origin + horizon > span.end:
            continue
        ahead = forecast(span.series, origin=origin)
        values_T = span.series.values_TC[:, 0]
        return Course(
            name=f"{span.series.channels[0]} from {_time_text(span.series.time_T[origin])}",
            past=_or_none(values_T[max(origin - _PAST * horizon, 0) : origin].tolist()),
            truth=_or_none(values_T[origin : origin + horizon].tolist()),
            forecast=_or_none(ahead.mean_HC[:, 0].tolist()),
        )
    return None


def _time_text(time: np.generic) -> str:
    """Only the parts it needs: no seconds where there are only hours."""
    return str(np.datetime_as_string(time, unit="auto")) if isinstance(time, np.datetime64) else f"{time}"


def _or_none(values: Sequence[float]) -> list[float | None]:
    """JSON has no number for a missing value."""
    return [value if np.isfinite(value) else None for value in values]

"""Pictures of forecasts, by matplotlib where it is installed.

T time, H steps ahead.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from statewise.data.series_split import Span
from statewise.specs import ForecastingSpec, UserError
from statewise.tasks.forecasting.ahead import Ahead

_ENDINGS = (".svg", ".png", ".pdf", ".csv")
_ERRORS_READ = (
    "The lower the better; where a dashed line runs below the solid one, that simple rule does better so far ahead."
)
_FORECAST_READ = (
    "Right of the dotted line nothing of the truth was read; each band should hold the share of it that it names."
)


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


def save_plot(path: Path, shown: Shown) -> Path:
    """A picture, or as `.csv` the numbers in it."""
    if path.suffix not in _ENDINGS:
        raise UserError(f"{str(path)!r} is no kind of picture that is known here", fix=f"name it {', '.join(_ENDINGS)}")
    if not path.parent.is_dir():
        raise UserError(f"{str(path)!r} cannot be written", fix="name a file in a folder that exists")
    if path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows(_numbers(shown))
        return path
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            "plots are drawn with matplotlib, which is not installed", fix="pip install 'statewise[plots]'"
        ) from None
    figure = Figure(figsize=(9, 4), layout="constrained")  # no pyplot: nothing global, no screen needed
    axes = figure.add_subplot()
    if shown.errors:
        _draw_errors(axes, shown.errors)
    else:
        _draw_forecast(axes, shown)
    axes.set_title(shown.title)
    figure.supxlabel(_ERRORS_READ if shown.errors else _FORECAST_READ, fontsize="small", color="0.35")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    figure.savefig(path, dpi=120)
    return path


def _numbers(shown: Shown) -> Iterator[Sequence[Any]]:
    """Rows with their header; what is not known at a moment stays empty."""
    if shown.errors:
        yield ["steps ahead", *shown.errors]
        for step, values in enumerate(zip(*shown.errors.values(), strict=True), start=1):
            yield [step, *values]
        return
    levels = sorted(shown.quantiles)
    yield ["time", "truth", "forecast", *(f"quantile {level:g}" for level in levels)]
    ahead = {str(moment): step for step, moment in enumerate(shown.ahead_time)}
    for moment, truth in zip(shown.time, shown.truth, strict=True):
        at = ahead.get(str(moment))
        told = [] if at is None else [shown.mean[at], *(shown.quantiles[level][at] for level in levels)]
        yield [moment, "" if np.isnan(truth) else truth, *("" if np.isnan(one) else one for one in told)]


def _draw_errors(axes: Any, errors: Mapping[str, Sequence[float]]) -> None:
    for number, (name, curve) in enumerate(errors.items()):
        own = number == 0
        axes.plot(
            np.arange(1, len(curve) + 1),
            curve,
            label=name,
            linewidth=2.2 if own else 1.2,
            linestyle="-" if own else "--",
            marker="o" if len(curve) == 1 else None,
        )
    axes.set_xlabel("steps ahead")
    axes.set_ylabel("mean squared error (scaled)")
    axes.set_ylim(bottom=0)


def _draw_forecast(axes: Any, shown: Shown) -> None:
    axes.plot(shown.time, shown.truth, color="0.25", linewidth=1.2, label="truth")
    axes.plot(shown.ahead_time, shown.mean, color="tab:blue", linewidth=2, label="forecast")
    levels = sorted(shown.quantiles)
    for number, low in enumerate(levels):
        high = next((q for q in levels if abs(q - (1 - low)) < 1e-9), None)
        if low < 0.5 and high is not None and not np.isnan(shown.quantiles[low]).all():
            axes.fill_between(
                shown.ahead_time,
                shown.quantiles[low],
                shown.quantiles[high],
                color="tab:blue",
                alpha=0.12 + 0.08 * number,
                linewidth=0,
                label=f"{high - low:.0%} interval",
            )
    axes.set_xlabel("time")
    axes.set_ylabel(f"{shown.unit} (as in the data)")
    axes.axvline(shown.ahead_time[0], color="0.6", linewidth=0.8, linestyle=":")
    for label in axes.get_xticklabels():
        label.set_rotation(20)

"""Pictures of forecasts, by matplotlib where it is installed.

T time, H steps ahead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from statewise.specs import UserError

_ENDINGS = (".svg", ".png", ".pdf")


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


def save_plot(path: Path, shown: Shown) -> Path:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            "plots are drawn with matplotlib, which is not installed", fix="pip install 'statewise[plots]'"
        ) from None
    if path.suffix not in _ENDINGS:
        raise UserError(f"{str(path)!r} is no kind of picture that is known here", fix=f"name it {', '.join(_ENDINGS)}")
    if not path.parent.is_dir():
        raise UserError(f"{str(path)!r} cannot be written", fix="name a file in a folder that exists")
    figure = Figure(figsize=(9, 4), layout="constrained")  # no pyplot: nothing global, no screen needed
    axes = figure.add_subplot()
    if shown.errors:
        _draw_errors(axes, shown.errors)
    else:
        _draw_forecast(axes, shown)
    axes.set_title(shown.title)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    figure.savefig(path, dpi=120)
    return path


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
    axes.axvline(shown.ahead_time[0], color="0.6", linewidth=0.8, linestyle=":")
    for label in axes.get_xticklabels():
        label.set_rotation(20)

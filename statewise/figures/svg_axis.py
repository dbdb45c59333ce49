"""The axes of a drawing: which values are shown, where they lie, and the grid with its labels."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from statewise.figures.figure import FORMATS, Axis, Figure, bounds, ticks
from statewise.figures.label import FONT, distinguishable, shortened, text_width


class Frame(NamedTuple):
    """Where the plot lies inside the picture, in pixels."""

    left: float
    top: float
    right: float
    bottom: float


class Ruler(NamedTuple):
    """From a value to a pixel."""

    axis: Axis
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.axis.scale == "log":
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def scale(figure: Figure, *, along: str, most: int) -> tuple[list[float], float, float]:
    axis = figure.x if along == "x" else figure.y
    if axis.scale == "category":
        return [float(at) for at in range(len(axis.categories))], 0.0, float(len(axis.categories))
    if figure.kind == "plane":  # one scale for both
        furthest = max((abs(value) for series in figure.series for value in (*series.x, *series.y)), default=0.0)
        reach = 1.08 * max(furthest, figure.circle or 0.0) or 1.0
        return ticks(axis, -reach, reach, most=most), -reach, reach
    values = [value for series in figure.series for value in (series.x if along == "x" else series.y)]
    if (along == "x") == (figure.kind in ("dots", "bars")):
        values += [value for series in figure.series for value in (*series.low, *series.high)]
        values += [0.0] if figure.kind == "bars" else []
    if axis.scale == "log":
        values = [value for value in values if value > 0]
    low, high = bounds(axis, values)
    return ticks(axis, low, high, most=most), low, high


def tick_text(axis: Axis, value: float, all_of_them: Sequence[float]) -> str:
    if axis.scale == "category":
        return axis.categories[round(value)]
    if axis.unit != "plain":
        form = FORMATS[axis.unit]
        # Close together, three digits are too few to tell two ticks apart.
        alike = axis.unit == "count" and len({form(tick) for tick in all_of_them}) < len(all_of_them)
        return f"{value:,.0f}" if alike else form(value)
    texts = [f"{tick:.6g}" for tick in all_of_them]
    if len(set(texts)) < len(texts):  # far from 0 and close together
        return f"{value:.12g}"
    places = max((len(text.partition(".")[2]) for text in texts), default=0)
    return f"{value:.{places}f}" if axis.scale == "linear" and "e" not in "".join(texts) else f"{value:.6g}"


def grid(
    figure: Figure, frame: Frame, x: Ruler, y: Ruler, x_ticks: Sequence[float], y_ticks: Sequence[float], width: int
) -> list[str]:
    left, top, right, bottom = frame
    parts = []
    last = -math.inf
    for tick in x_ticks:
        at, text = x.at(tick), tick_text(figure.x, tick, x_ticks)
        half = text_width(text) / 2
        parts.append(f'<line class="grid" x1="{at:.1f}" y1="{top:.1f}" x2="{at:.1f}" y2="{bottom:.1f}"/>')
        middle = min(max(at, half + 2), width - 2 - half)
        if middle - half > last + 6:  # a label that would touch the one before it is left out, its line stays
            parts.append(
                f'<text class="tick" x="{middle:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{text}</text>'
            )
            last = middle + half
    room = left - FONT * 1.6 - 8
    names = distinguishable([tick_text(figure.y, tick, y_ticks) for tick in y_ticks], room) if room > 0 else []
    for tick, name in zip(y_ticks, names):
        at, shown = y.at(tick), escape(name)
        if figure.kind != "bars":
            parts.append(f'<line class="grid" x1="{left:.1f}" y1="{at:.1f}" x2="{right:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick" x="{left - 6:.1f}" y="{at + 4:.1f}" text-anchor="end">{shown}</text>')
    parts.append(f'<path class="axis" d="M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}"/>')
    return [*parts, *axis_labels(figure, frame, x_room=width - 8, y_room=bottom - top, y=bottom + 36, width=width)]


def axis_labels(
    figure: Figure, frame: Frame, *, x_room: float, y_room: float, y: float, width: int, x: int = 13
) -> list[str]:
    """The x label at height `y`, centred below the plot as far as the picture allows; the y label upright at `x`."""
    label = escape(shortened(figure.x.label, x_room))
    half = min(text_width(figure.x.label), x_room) / 2
    at = min(max((frame.left + frame.right) / 2, half + 4), width - half - 4)
    parts = [f'<text class="label" x="{at:.1f}" y="{y:.1f}" text-anchor="middle">{label}</text>']
    if figure.y.label:
        label, middle = escape(shortened(figure.y.label, y_room)), (frame.top + frame.bottom) / 2
        parts.append(
            f'<text class="label" transform="translate({x} {middle:.1f}) rotate(-90)"'
            f' text-anchor="middle">{label}</text>'
        )
    return parts

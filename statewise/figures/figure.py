"""A figure as data, to be drawn, printed or exported."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from statewise.display import Format, count, duration, plain, size, whole
from statewise.figures.table import csv_text

Scale = Literal["linear", "log", "category"]
Unit = Literal["plain", "count", "bytes", "seconds", "whole"]
Kind = Literal["line", "points", "dots", "bars", "scatter", "plane", "map"]

FORMATS: dict[Unit, Format] = {"plain": plain, "count": count, "bytes": size, "seconds": duration, "whole": whole}


class Axis(NamedTuple):
    label: str  # with its unit
    scale: Scale = "linear"
    unit: Unit = "plain"
    base: int = 10  # log: where the ticks fall
    categories: tuple[str, ...] = ()  # category: its rows, from the top
    limits: tuple[float, float] | None = None  # what is shown, where that is not everything


class Series(NamedTuple):
    """`low` and `high` bound y (of `dots` and `bars`: x). `entry` gives the colour; one without belongs to no entry."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    entry: str | None = None
    small: bool = False  # beside a larger mark
    text: tuple[str, ...] = ()  # printed beside each bar or point

    @classmethod
    def with_band(
        cls, name: str, x: Iterable[float], y: Iterable[float], half: Iterable[float], *, least: float = -math.inf
    ) -> "Series":
        """Points with an interval of `y ± half`, no lower than `least`."""
        x, y, half = tuple(map(float, x)), tuple(map(float, y)), tuple(map(float, half))
        low = tuple(max(mean - width, least) for mean, width in zip(y, half))
        return cls(name, x, y, low, tuple(mean + width for mean, width in zip(y, half)))


class Grid(NamedTuple):
    """The cells of a map, rows from the top; None: empty.

    Where an axis has no categories, `x` and `y` are the values that columns and rows stand for.
    """

    values: tuple[tuple[float | None, ...], ...]
    label: str  # what the colour means, with its unit
    unit: Unit = "plain"
    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()
    log: bool = False  # the colour goes by powers of ten
    signed: bool = False  # two colours, one on each side of 0
    limits: tuple[float, float] | None = None

    def ends(self) -> tuple[float, float]:
        """The values of the lightest and the darkest colour."""
        if self.limits is not None:
            return self.limits
        seen = [value for row in self.values for value in row if value is not None and (value > 0 or not self.log)]
        low, high = min(seen, default=0.0), max(seen, default=1.0)
        if self.signed:
            high = max(abs(low), abs(high))
            low = -high
        return (low, high) if high > low else (low, low * 10 if self.log and low > 0 else low + 1.0)

    def depth(self, value: float) -> float:
        """The position of a value on the palette, 0 to 1."""
        low, high = self.ends()
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return min(max((value - low) / (high - low), 0.0), 1.0)


class Figure(NamedTuple):
    """`line`: labelled curves with a band; `points`: a labelled point per entry; `scatter`: clouds of points; `plane`:
    the same with equal axes, and a circle about 0; `dots`, `bars`: a row per entry, values along x; `map`: a coloured
    grid."""

    name: str
    title: str
    kind: Kind
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    reading: str  # how to read it, in a sentence
    finding: str  # what it shows here, computed
    missing: tuple[str, ...] = ()  # what could not be drawn, and why
    grid: Grid | None = None  # of a map
    circle: float | None = None  # of a plane: its radius
    joined: tuple[tuple[str, ...], ...] = ()  # of points: names of series that a line connects, in this order

    @property
    def drawable(self) -> bool:
        return bool(self.series) or (self.grid is not None and bool(self.grid.values))

    def as_dict(self) -> dict[str, Any]:
        record = {name: value for name, value in self._asdict().items() if name not in ("grid", "circle", "joined")}
        record |= {"x": self.x._asdict(), "y": self.y._asdict(), "series": [series._asdict() for series in self.series]}
        if self.grid is not None:
            record["grid"] = self.grid._asdict()
        if self.circle is not None:
            record["circle"] = self.circle
        if self.joined:
            record["joined"] = self.joined
        return record

    def csv(self) -> str:
        """One row a point (of a map: a cell); the columns are named by the axes."""
        if self.grid is not None:
            rows = [[self.y.label or "row", self.x.label or "column", self.grid.label]]
            for at, row in enumerate(self.grid.values):
                for across, value in enumerate(row):
                    place = [_cell(self.y, self.grid.y, at), _cell(self.x, self.grid.x, across)]
                    rows.append([*place, "" if value is None else _exact(value)])
            return csv_text(rows)
        bounded = any(series.low for series in self.series)
        rows = [["series", self.x.label, self.y.label, *(["low", "high"] if bounded else [])]]
        for series in self.series:
            for at, (x, y) in enumerate(zip(series.x, series.y)):
                bounds = [_exact(series.low[at]), _exact(series.high[at])] if series.low else [""] * (2 * bounded)
                rows.append([series.name, _place(self.x, x), _place(self.y, y), *bounds])
        return csv_text(rows)


def ticks(axis: Axis, low: float, high: float, *, most: int) -> list[float]:
    """At most `most` round values between two bounds."""
    if axis.scale == "log" and len(log_ticks := _log_ticks(low, high, base=axis.base, most=most)) > 1:
        return log_ticks
    # Bytes are round in their own unit. A short range of a logarithm is cut evenly.
    unit = 1024.0 ** max(int(math.log(max(high, 1), 1024)), 0) if axis.unit == "bytes" else 1.0
    return [
        tick * unit for tick in _linear_ticks(low / unit, high / unit, most=most) if tick > 0 or axis.scale != "log"
    ]


def bounds(axis: Axis, values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis: the range of the values with a margin."""
    if axis.limits is not None:
        return axis.limits
    low, high = min(values), max(values)
    if axis.scale == "log":
        assert low > 0, (axis.label, low)
        air = (high / low) ** 0.05 if high > low else 1.3
        return low / air, high * air
    air = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return (max(low - air, 0.0) if low >= 0 else low - air), high + air


def _linear_ticks(low: float, high: float, *, most: int) -> list[float]:
    raw = (high - low) / max(most - 1, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.9999)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{at * step:.12g}") for at in range(first, math.floor(high / step + 1e-9) + 1)][: most + 1]


def _log_ticks(low: float, high: float, *, base: int, most: int) -> list[float]:
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
    if base == 10:
        for within in ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5), (1, 2, 5), (1, 3)):
            values = [f * 10.0**p for p in range(first, last + 1) for f in within if low <= f * 10.0**p <= high]
            if len(values) <= most:
                return values
    powers = [p for p in range(first, last + 1) if low <= float(base) ** p <= high]
    every = -(-len(powers) // most) or 1
    return [float(base) ** p for p in powers if p % every == 0]


def _place(axis: Axis, value: float) -> str:
    return axis.categories[round(value)] if axis.scale == "category" else _exact(value)


def _cell(axis: Axis, values: Sequence[float], at: int) -> str:
    return axis.categories[at] if axis.categories else _exact(values[at])


def _exact(value: float) -> str:
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)

"""Time columns: parse, sort, check for one step size, and continue.

T time.
"""

from collections.abc import Sequence
from datetime import UTC
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from statewise.data.date_format import date_format
from statewise.specs import UserError, setting

_LAST_YEAR = np.datetime64("9999")  # of Python's dates
_FEW_ROWS = 100_000  # gaps may always be filled up to this length
TIME_NAMES = frozenset({"date", "time", "datetime", "timestamp", "ds", "date_time", "datum", "year"})


def index_time(length: int) -> NDArray[np.int64]:
    """Row numbers: the time of a series without a time column."""
    return np.arange(length, dtype=np.int64)


def parse_times(cells: Sequence[str], lines: Sequence[int] | NDArray[np.int64], where: str) -> NDArray[Any]:
    """Numbers as float64; dates, all in one format, as datetime64 (in UTC where a zone is given)."""
    eight = all(len(cell) == 8 and cell.isascii() and cell.isdigit() for cell in cells)  # 20160701
    if not eight:
        try:
            numbers = np.array([float(cell) for cell in cells])
        except ValueError:
            pass
        else:
            if np.isfinite(numbers).all() and not any("_" in cell for cell in cells):
                return numbers
    format = date_format(cells, lines=[int(line) for line in lines], where=where)
    times = []
    aware: bool | None = None
    for cell, line in zip(cells, lines, strict=True):
        time = format.parse(cell)
        if time is None:
            if eight:
                return np.array([float(cell) for cell in cells])
            raise UserError(
                f"{where}:{line}: time {cell!r} is neither a number nor a date"
                + (" (it is empty)" if not cell else ""),
                fix="write dates year first, 2016-07-31 or 2016-07-31 13:00:00, or name another "
                f"column, or none (rows are the time): {setting('data.time', 'none')}",
            )
        if aware is not None and aware != (time.tzinfo is not None):
            raise UserError(f"{where}:{line}: some times have a zone and some, as {cell!r}, do not", fix="use one form")
        aware = time.tzinfo is not None
        try:
            times.append(time.astimezone(UTC).replace(tzinfo=None) if aware else time)
        except OverflowError:
            raise UserError(f"{where}:{line}: time {cell!r} is before year 1 or after year 9999 in UTC") from None
    return np.array(times, dtype="datetime64[us]")


def in_order(
    time_T: NDArray[Any],
    lines_T: NDArray[np.int64],
    where: str,
    *,
    unsorted: Literal["refuse", "sort"],
    repeated: Literal["refuse", "first", "last"] = "refuse",
) -> NDArray[np.int64]:
    """The rows' order along time. Of rows with the same time, `repeated` says which is kept."""
    order_T = np.argsort(time_T, kind="stable")
    sorted_T = time_T[order_T]
    same_T = sorted_T[1:] == sorted_T[:-1]
    if same_T.any():
        if repeated == "refuse":
            at = int(np.flatnonzero(same_T)[0])
            first, second = (lines_T[order_T[at + i]] for i in (0, 1))
            raise UserError(
                f"{where}: lines {first} and {second} have the same time {_shown(sorted_T[at])}",
                fix=f"keep the first row of each time, {setting('data.repeated', 'first')}, or the last (clocks go "
                "back in autumn); if the file holds several series, name the column that tells them apart: "
                f"{setting('data.id', 'COLUMN')}; if the column is not a time, name another: "
                f"{setting('data.time', 'COLUMN')}",
            )
        kept_T = np.concatenate([[True], ~same_T] if repeated == "first" else [~same_T, [True]])
        order_T = order_T[kept_T]
        kept = np.sort(order_T)  # where a clock was set back, what is left is in order
        lines_T, time_T = lines_T[kept], time_T[kept]
    back = np.flatnonzero(time_T[1:] < time_T[:-1])
    if len(back) and unsorted == "refuse":
        at = back[0] + 1
        raise UserError(
            f"{where}:{lines_T[at]}: time {_shown(time_T[at])} comes after {_shown(time_T[at - 1])} of the line above",
            fix=f"sort the file, or let it be sorted: {setting('data.unsorted', 'sort')}",
        )
    return order_T


def on_grid(
    time_T: NDArray[Any], lines_T: NDArray[np.int64], where: str, *, irregular: Literal["refuse", "keep", "fill"]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Times of one step size, and the place of each row among them; see `read_series` for `irregular`."""
    place_T = np.arange(len(time_T))
    if irregular == "keep" or len(time_T) < 3:
        return time_T, place_T
    scale = _scale(time_T)
    gap_T = np.diff(scale)
    step = _usual(gap_T)
    odd_T = ~np.isclose(gap_T, step, rtol=1e-6, atol=0)
    if not odd_T.any():
        return time_T, place_T
    at = int(np.flatnonzero(odd_T)[0])
    seen = f"from {_shown(time_T[at])} to {_shown(time_T[at + 1])} the step is not the usual one"
    if irregular == "refuse":
        raise UserError(
            f"{where}:{lines_T[at + 1]}: {seen} ({int(odd_T.sum())} of {len(gap_T)} steps are not)",
            fix=f"insert rows of missing values, {setting('data.irregular', 'fill')}, or take every row as one step: "
            f"{setting('data.irregular', 'keep')}",
        )
    steps_T = gap_T / step
    whole_T = np.rint(steps_T)
    off = np.flatnonzero((np.abs(steps_T - whole_T) > 1e-6) | (whole_T < 1))
    if len(off):
        raise UserError(
            f"{where}:{lines_T[off[0] + 1]}: the step to {_shown(time_T[off[0] + 1])} is {steps_T[off[0]]:g} of the "
            "usual one, so there is no grid to fill",
            fix=f"take every row as one step, {setting('data.irregular', 'keep')}, or resample the file",
        )
    place_T = np.concatenate([[0], np.cumsum(whole_T)]).astype(np.int64)
    if place_T[-1] > max(_FEW_ROWS, 100 * len(time_T)):
        raise UserError(
            f"{where}: to fill the gaps between {len(time_T):,} rows would make {place_T[-1] + 1:,} of them",
            fix=f"take every row as one step, {setting('data.irregular', 'keep')}, or resample the file",
        )
    return _grid(time_T, place_T, step), place_T


def next_times(time_T: NDArray[Any], count: int, where: str) -> NDArray[Any]:
    """The next `count` times, by the usual step; months stay months."""
    time = _next(time_T, count, where)
    if time.dtype.kind == "M" and time[-1].astype("datetime64[Y]") > _LAST_YEAR:
        raise UserError(
            f"{where}: the forecast goes beyond year {_LAST_YEAR}", fix="correct the times of the last rows"
        )
    return time


def _next(time_T: NDArray[Any], count: int, where: str) -> NDArray[Any]:
    dated, ahead = time_T.dtype.kind == "M", np.arange(1, count + 1)
    if len(time_T) < 2:
        if dated:
            raise UserError(f"{where}: a single row has no step in time, so what comes next has no date")
        return time_T[-1:] + ahead
    step, monthly = _usual(np.diff(_scale(time_T))), _is_monthly(time_T)
    if len(time_T) == 2 and dated:  # two dates do not tell months from days
        step, monthly = float((time_T[1] - time_T[0]).astype(np.int64)), False
    times = _after(time_T, time_T[-1], ahead, step, monthly=monthly)
    return times if dated else times.astype(time_T.dtype)


def _after(time_T: NDArray[Any], start: Any, number: NDArray[np.int64], step: float, *, monthly: bool) -> NDArray[Any]:
    """The times `number` steps after `start`; monthly: on the same day, counted from the start or end of the month."""
    if time_T.dtype.kind != "M":
        even: NDArray[Any] = start + number * step
        return even
    if not monthly:
        passed: NDArray[Any] = start + (number * int(step)).astype("timedelta64[us]")
        return passed
    first = start.astype("datetime64[M]")
    month = first + (number * int(step)).astype("timedelta64[M]")
    within_T = time_T - time_T.astype("datetime64[M]").astype(time_T.dtype)
    if (within_T == within_T[0]).all():
        on_day: NDArray[Any] = month.astype(time_T.dtype) + within_T[0]
        return on_day
    from_end = (first + 1).astype(time_T.dtype) - start
    at_end: NDArray[Any] = (month + 1).astype(time_T.dtype) - from_end
    return at_end


def _scale(time_T: NDArray[Any]) -> NDArray[np.float64]:
    """Time as numbers. Months of unequal length are equal steps where every row is the same day of its month."""
    if time_T.dtype.kind != "M":
        return time_T.astype(np.float64)
    return _months(time_T).astype(np.float64) if _is_monthly(time_T) else (time_T - time_T[0]).astype(np.float64)


def _is_monthly(time_T: NDArray[Any]) -> bool:
    if time_T.dtype.kind != "M":
        return False
    month_T = time_T.astype("datetime64[M]")
    within_T = time_T - month_T.astype(time_T.dtype)
    to_end_T = (month_T + 1).astype(time_T.dtype) - time_T
    alike = bool((within_T == within_T[0]).all() or (to_end_T == to_end_T[0]).all())
    return alike and bool((np.diff(_months(time_T)) >= 1).all())


def _months(time_T: NDArray[Any]) -> NDArray[np.int64]:
    return time_T.astype("datetime64[M]").astype(np.int64)


def _usual(gap_T: NDArray[np.float64]) -> float:
    gaps, counts = np.unique(gap_T, return_counts=True)
    return float(gaps[counts == counts.max()][0])


def _grid(time_T: NDArray[Any], place_T: NDArray[np.int64], step: float) -> NDArray[Any]:
    full = _after(time_T, time_T[0], np.arange(place_T[-1] + 1), step, monthly=_is_monthly(time_T)).astype(time_T.dtype)
    full[place_T] = time_T
    return full


def _shown(time: Any) -> str:
    return str(time).removesuffix(".000000") if isinstance(time, np.datetime64) else f"{time:.10g}"

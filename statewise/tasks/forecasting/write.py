"""Forecasts in the layout of the file that they go on from."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from statewise.data.series import NO_TIME
from statewise.data.series_table import SeriesTable, read_series_table
from statewise.data.series_time import TIME_NAMES
from statewise.specs import SeriesDataSpec


def special_columns(table: SeriesTable | None, data: SeriesDataSpec) -> tuple[str | None, str | None]:
    """The columns of the time and of the id."""
    if table is None:
        return "time", "series"
    time = data.time
    if time is None:
        time = next((name for name in table.columns if name.lower() in TIME_NAMES and name != data.id), None)
    return (None if time == NO_TIME else time), data.id


def table_of(path: str) -> SeriesTable | None:
    """None for a file that holds arrays."""
    return None if path.endswith((".npy", ".npz", ".mat")) else read_series_table(Path(path))


def line(cells: Sequence[str], delimiter: str) -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator="").writerow(cells)
    return stream.getvalue()


def number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def moment_of(moment: Any) -> str | float | int:
    if isinstance(moment, np.datetime64):
        return str(moment.astype("datetime64[us]")).removesuffix(".000000")
    return int(moment) if float(moment).is_integer() else float(moment)


def written(moment: Any, like: str) -> str:
    """As the file writes its times: the date alone, a space or a T, seconds or none."""
    if not isinstance(moment, np.datetime64):
        return str(moment_of(moment))
    text = str(moment.astype("datetime64[us]")).removesuffix(".000000")
    text = text if "T" in like else text.replace("T", " ")
    date, _, clock = text.partition("T" if "T" in like else " ")
    if len(like) <= 10 and clock == "00:00:00":
        return date
    if like.count(":") == 1 and text.endswith(":00"):
        return text.removesuffix(":00")
    return text

"""Forecasts in the layout of the file that they go on from."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from statewise.data.date_style import date_style
from statewise.data.series import NO_TIME, time_column
from statewise.data.series_table import SeriesTable, read_series_table
from statewise.specs import SeriesDataSpec


def special_columns(table: SeriesTable | None, data: SeriesDataSpec) -> tuple[str | None, str | None]:
    """The columns of the time and of the id."""
    if table is None:
        return "time", "series"
    time = time_column(table, data.time, id=data.id)
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


def written(moment: Any, like: Sequence[str]) -> str:
    """As the column of these cells writes its times."""
    return date_style(like).written(moment) if isinstance(moment, np.datetime64) else str(moment_of(moment))

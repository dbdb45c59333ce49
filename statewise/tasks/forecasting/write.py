"""Forecasts in the layout of the file that they go on from."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from statewise.data import NO_TIME, Series, SeriesTable, date_format, read_series_table, time_column
from statewise.specs import SeriesDataSpec
from statewise.tasks.forecasting.ahead import Ahead
from statewise.tasks.forecasting.known import Known


def appended(
    file: str, forecasts: Sequence[tuple[Series, Ahead]], *, data: SeriesDataSpec, known: Known
) -> Iterator[str]:
    """Rows that could be appended to the file: its own columns, in its own order; what is unknown stays empty.

    Where a line of the file is a series, the lines are their continuations.
    """
    if data.layout == "rows" and not _holds_arrays(file):
        yield from (line([series.id, *(f"{x:.10g}" for x in ahead.mean_HC[:, 0])], ",") for series, ahead in forecasts)
        return
    table = table_of(file, data)
    columns = table.columns if table is not None else ("time", "series", *known.channels)
    delimiter = table.delimiter if table is not None else ","
    shown = table.written if table is not None else "{:.10g}".format
    time, id_ = special_columns(table, data)
    if table is None or table.headed:
        yield line(columns, delimiter)
    for series, ahead in forecasts:
        like = table.cells(time) if table is not None and time is not None else [""]
        for step, moment in enumerate(ahead.time_H):
            cells: dict[str, str] = {}
            if time is not None:
                cells[time] = written(moment, like)
            if id_ is not None:
                cells[id_] = series.id
            names = (*known.channels, *known.covariates)
            values = (*ahead.mean_HC[step], *ahead.covariates_HX[step])
            cells |= {name: shown(value) for name, value in zip(names, values, strict=True)}
            yield line([cells.get(name, "") for name in columns], delimiter)


def special_columns(table: SeriesTable | None, data: SeriesDataSpec) -> tuple[str | None, str | None]:
    """The columns of the time and of the id."""
    if table is None:
        return "time", "series"
    time = time_column(table, data.time, id=data.id)
    return (None if time == NO_TIME else time), data.id


def table_of(path: str, data: SeriesDataSpec) -> SeriesTable | None:
    """None for a file that holds arrays."""
    return None if _holds_arrays(path) else read_series_table(Path(path), decimal=data.decimal, header=data.header)


def _holds_arrays(path: str) -> bool:
    return path.endswith((".npy", ".npz", ".mat"))


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
    return date_format(like).format(moment) if isinstance(moment, np.datetime64) else str(moment_of(moment))

"""Forecasts in the form of what they continue: an array, a tensor, a frame with its own columns; and as rows.

T time, H horizon, C channels.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.data import (
    NO_TIME,
    Data,
    Series,
    SeriesTable,
    array_of,
    date_format,
    frame_like,
    lists_series,
    make_series,
    read_series_table,
    series_table,
    time_column,
)
from statewise.specs import SeriesDataSpec, UserError, option
from statewise.tasks.forecasting.ahead import Ahead, last_seen
from statewise.tasks.forecasting.known import Known

_BETWEEN = re.compile(r"[\s,;]+")  # two values of a prompt


def rows_ahead(series: Series, ahead: Ahead) -> Iterator[dict[str, Any]]:
    """A dict for every time step and channel of a forecast."""
    for step, timestamp in enumerate(ahead.time_H):
        for channel, name in enumerate(series.channels):
            levels = enumerate(ahead.levels)
            quantiles = {f"{q:g}": number(ahead.quantile_HCQ[step, channel, at]) for at, q in levels}
            yield {
                "series": series.id,
                "time": timestamp_of(timestamp),
                "channel": name,
                "step": step + 1,
                "mean": float(ahead.mean_HC[step, channel]),
                "quantiles": quantiles or None,
            }


def rows_filled(
    series: Series, filled_TC: NDArray[np.float64], forward_TC: NDArray[np.float64]
) -> Iterator[dict[str, Any]]:
    """A dict for every missing value: filled from both sides, and by a forecast from before alone."""
    for row, channel in np.argwhere(np.isnan(series.values_TC[: last_seen(series)])):
        yield {
            "series": series.id,
            "time": timestamp_of(series.time_T[row]),
            "channel": series.channels[channel],
            "mean": number(filled_TC[row, channel]),
            "forecast": number(forward_TC[row, channel]),
        }


def array_like(data: Data, means: Sequence[NDArray[np.float64]]) -> Any:
    """The forecasts `[H, C]` of all series with as many axes as `data`; a tensor for a tensor, a list for a list."""
    if lists_series(data):
        return [array_like(item, [mean]) for item, mean in zip(data, means, strict=True)]
    given = array_of(data)
    assert given is not None, "series_arrays found numbers"
    means_ = np.stack(means) if given.ndim == 3 else means[0][:, 0] if given.ndim == 1 else means[0]
    if not isinstance(data, torch.Tensor):
        return means_
    kind = data.dtype if data.is_floating_point() else torch.get_default_dtype()
    return torch.as_tensor(means_, dtype=kind, device=data.device)


def frame_ahead(
    data: Data, file: str, forecasts: Sequence[tuple[Series, Ahead]], *, spec: SeriesDataSpec, known: Known
) -> Any:
    """The rows that come next, as the same kind of object; `file` is the table that was made of `data`.

    It has the columns of the time, the id, the channels and the covariates, in the order of `data`.
    """
    table = table_of(file, spec)
    assert table is not None, "arrays are answered by arrays"
    time, id_ = special_columns(table, spec)
    columns: dict[str, Any] = {}
    if time is not None:
        timestamps = np.concatenate([ahead.time_H for _, ahead in forecasts])
        own = series_table(spec, data)
        assert own is not None, "it was written to the file"
        columns[time] = _times(timestamps, own.columns[time][0], table.cells(time))
    if id_ is not None:
        columns[id_] = [series.id for series, ahead in forecasts for _ in ahead.time_H]
    for at, name in enumerate(known.channels):
        columns[name] = np.concatenate([ahead.mean_HC[:, at] for _, ahead in forecasts])
    for at, name in enumerate(known.covariates):
        columns[name] = np.concatenate([ahead.covariates_HX[:, at] for _, ahead in forecasts])
    return frame_like(data, {name: columns[name] for name in table.columns if name in columns})


def _times(timestamps: NDArray[Any], like: Any, cells: Sequence[str]) -> Any:
    """Times of the kind that the column has: strings in its style, dates in its zone, or numbers."""
    if isinstance(like, str):
        return [written(timestamp, cells) for timestamp in timestamps]
    if isinstance(like, datetime) and like.tzinfo is not None:
        return [timestamp.replace(tzinfo=UTC).astimezone(like.tzinfo) for timestamp in timestamps.tolist()]
    return timestamps.astype(np.int64) if isinstance(like, int) else timestamps


def series_of(prompt: str, channels: Sequence[str]) -> Series:
    """Numbers with blanks or commas between; the values of all channels at a time step stand together."""
    values = []
    for word in filter(None, _BETWEEN.split(prompt)):
        try:
            values.append(float(word))
        except ValueError:
            raise UserError(
                f"the prompt has {word!r}, which is not a number",
                fix=f"give values: {option('prompt', '20.1 21.5 22')}",
            ) from None
    if not values or len(values) % len(channels):
        raise UserError(
            f"the prompt holds {len(values)} values, but a time step of this series has {len(channels)}: "
            f"{', '.join(channels)}",
            fix="give all of them for each time step",
        )
    return make_series(np.array(values).reshape(-1, len(channels)), channels=channels, where="the prompt")


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
        for step, timestamp in enumerate(ahead.time_H):
            cells: dict[str, str] = {}
            if time is not None:
                cells[time] = written(timestamp, like)
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


def timestamp_of(timestamp: Any) -> str | float | int:
    if isinstance(timestamp, np.datetime64):
        return str(timestamp.astype("datetime64[us]")).removesuffix(".000000")
    return int(timestamp) if float(timestamp).is_integer() else float(timestamp)


def written(timestamp: Any, like: Sequence[str]) -> str:
    """As the column of these cells writes its times."""
    return date_format(like).format(timestamp) if isinstance(timestamp, np.datetime64) else str(timestamp_of(timestamp))

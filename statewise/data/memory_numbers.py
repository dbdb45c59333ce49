"""Numbers in memory as the files that tasks read: arrays with labels, and series.

N rows or series, T time steps, C channels.
"""

import csv
import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.data.memory_object import (
    Data,
    MemoryFile,
    Role,
    Table,
    array_of,
    arrays_of,
    index_of_dates,
    is_missing,
    library_type,
    listed,
    rows_of,
    shown,
    table_of,
)
from statewise.data.memory_text import LABEL_NAMES, labels_of
from statewise.data.series import NO_TIME
from statewise.data.series_time import TIME_NAMES
from statewise.specs import LabelledDataSpec, SeriesDataSpec, UserError


def _numbers(data: Data) -> NDArray[Any] | None:
    """Rows of numbers as one array; None if `data` does not hold numbers."""
    array = array_of(data)
    if array is not None:
        return array
    rows = arrays_of(data)
    if rows is None:
        return None
    number = next(number for number, row in enumerate(rows) if row.shape != rows[0].shape)
    raise UserError(
        f"row {number} has shape {list(rows[number].shape)}, row 0 has {list(rows[0].shape)}",
        fix="rows of numbers have one shape: cut them, or pad them; ids of words are texts: ' '.join(map(str, row))",
    )


class _Numbers(NamedTuple):
    values: NDArray[Any]
    labels: list[Any] | None


def labelled_numbers_file(spec: LabelledDataSpec, data: Data, *, labelled: bool, training: bool) -> MemoryFile | None:
    """An archive of the values and their labels; None if the data holds texts, and texts are expected."""
    values = None if labelled else _numbers(data)
    numbers = _labelled(data) if labelled else None if values is None else _Numbers(values, None)
    if numbers is None:
        if spec.kind == "text":
            return None
        numbers = _of_table(spec, data, labelled=labelled, training=training)
    if spec.kind == "text" and not training:
        raise UserError("this run classifies texts, and the data holds numbers", fix="give texts")
    kind = "values" if spec.kind == "text" else spec.kind
    arrays = {spec.values: numbers.values}
    if numbers.labels is not None:
        arrays[str(spec.label)] = np.array(labels_of(numbers.labels))
    note = "" if kind == spec.kind else f"; it holds numbers, so data.kind is {kind!r}"
    adjusted = spec.model_copy(update={"kind": kind, "format": "auto"})
    return MemoryFile("data.npz", _archive(arrays), adjusted, len(numbers.values), note=note)


def _archive(arrays: Mapping[str, Any]) -> bytes:
    stream, named = io.BytesIO(), dict[str, Any](arrays)
    np.savez(stream, **named)
    return stream.getvalue()


def _labelled(data: Data) -> _Numbers | None:
    """`(x, y)`, `{"x": x, "y": y}` or rows of `(values, label)`; None for anything else."""
    if isinstance(data, Mapping):
        arrays = {name: array_of(values) for name, values in data.items()}
        wide = [name for name, array in arrays.items() if array is not None and array.ndim > 1]
        if len(data) != 2 or len(wide) != 1:
            return None
        x, y = data[wide[0]], next(values for name, values in data.items() if name != wide[0])
    elif isinstance(data, tuple) and len(data) == 2 and (listed(data[1]) is not None or _is_array(data[1])):
        x, y = data
    elif isinstance(data, list) and data and all(isinstance(row, list | tuple) and len(row) == 2 for row in data):
        if not isinstance(data[0][0], list | tuple) and array_of(data[0][0]) is None:
            return None
        x, y = [row[0] for row in data], [row[1] for row in data]
    else:
        return None
    values, labels = _numbers(x), listed(y)
    if values is None or values.ndim < 2:
        return None
    if labels is None:
        raise UserError(
            f"the labels are {shown(y)}, expected one for each row",
            fix="give a list or an array [N]; of one-hot rows, y.argmax(1)",
        )
    if len(labels) != len(values):
        raise UserError(f"{len(values)} rows of numbers, but {len(labels)} labels", fix="give as many of each")
    return _Numbers(values, labels)


def _is_array(data: Data) -> bool:
    return isinstance(data, np.ndarray | torch.Tensor) and data.ndim > 1


def _of_table(spec: LabelledDataSpec, data: Data, *, labelled: bool, training: bool) -> _Numbers:
    """Every column but that of the label, from left to right, is a sequence."""
    table = table_of(data)
    if table is None or spec.kind == "grid":
        rows = "grids" if spec.kind == "grid" else "sequences"
        raise UserError(
            f"data of type {type(data).__name__} cannot be read as {rows} of numbers",
            fix="give (x, y): x of shape [N, T] or [N, T, C], or of grids [N, H, W] or [N, H, W, C], and a label a row",
        )
    default = type(spec).model_fields["label"].default
    role = Role("label", "data.label", spec.label, default, LABEL_NAMES | {"y"}, lambda cell: False)
    if not labelled and not any(name == spec.label or name.lower() in role.common_names for name in table.columns):
        label = None
    else:
        label = rows_of(table.columns, [role], training=training).names[0]
    others = {name: cells for name, cells in table.columns.items() if name != label}
    for name, cells in others.items():
        for number, cell in enumerate(cells):
            if is_missing(cell) or not isinstance(cell, int | float | np.number):
                raise UserError(f"row {number}: column {name!r} is {shown(cell)}, expected a number")
    values = np.array(list(others.values()), dtype=np.float64).T
    return _Numbers(values, table.columns[label] if label is not None and labelled else None)


def series_file(spec: SeriesDataSpec, data: Data) -> MemoryFile:
    """Arrays as an archive, a table as CSV. The dates in the index of a pandas object are the time."""
    arrays = series_arrays(data)
    if arrays is not None:
        named = {"values": arrays[0]} if len(arrays) == 1 else {str(n): array for n, array in enumerate(arrays)}
        return MemoryFile("data.npz", _archive(named), spec, sum(map(np.size, arrays)), unit="value")
    table = series_table(spec, data)
    if table is None or not table.columns:
        raise UserError(
            f"data of type {type(data).__name__} cannot be read as series",
            fix="give an array [T] or [T, C], a list of such arrays, a DataFrame or the name of a file; "
            "of a TimeSeries of darts, series.to_dataframe()",
        )
    names = list(table.columns)
    if all(name.isdecimal() for name in names):  # of a frame that was made from an array
        names = [f"channel {name}" for name in names]
    columns = [[_cell(cell) for cell in cells] for cells in table.columns.values()]
    lines = io.StringIO(newline="")
    csv.writer(lines, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(names)
    csv.writer(lines, lineterminator="\n").writerows(zip(*columns))
    index = index_of_dates(data)
    time = index if spec.time is None and index is not None and index.lower() not in TIME_NAMES else spec.time
    adjusted = spec.model_copy(update={"time": time, "decimal": "." if spec.decimal == "," else spec.decimal})
    return MemoryFile("data.csv", lines.getvalue().encode(), adjusted, len(columns[0]), first=2)


def series_table(spec: SeriesDataSpec, data: Data) -> Table | None:
    """A table with the dates of its index as a column, unless `time` is "none"; None for any other object."""
    frame = data.to_frame(str(data.name or "value")) if library_type(data) == "pandas.Series" else data
    return table_of(frame, time_index=spec.time != NO_TIME)


def lists_series(data: Data) -> bool:
    """Whether it is a list with an array for each series: of arrays, or of lists of numbers of unequal lengths."""
    if not isinstance(data, list | tuple) or not data:
        return False
    return isinstance(data[0], np.ndarray | torch.Tensor) or (array_of(data) is None and arrays_of(data) is not None)


def series_arrays(data: Data) -> list[NDArray[Any]] | None:
    """One array [T] or [T, C] for each series; None if `data` is a table, or does not hold numbers."""
    if library_type(data).startswith("pandas."):
        return None  # its index may be the time
    if lists_series(data):
        arrays = arrays_of(data)
    else:
        array = array_of(data)
        arrays = None if array is None else list(array) if array.ndim == 3 else [array]
    for number, array in enumerate(arrays or ()):
        if array.ndim not in (1, 2) or array.dtype.kind == "c":
            raise UserError(
                f"series {number} has shape {list(array.shape)} of {array.dtype}, expected numbers [T] or [T, C]",
                fix="give an array [T], [T, C] or [N, T, C], or a list of arrays [T] or [T, C]",
            )
    return arrays


def _cell(value: Any) -> str:
    """As a table of series writes it; a missing value is empty."""
    value = value.item() if isinstance(value, np.number | np.bool_) else value
    if is_missing(value):
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if isinstance(value, int | float) else str(value)

"""Data in memory: what kind of object it is, its columns and arrays, and the file that it becomes.

Types of other libraries are recognised by name and never imported: pandas, polars and datasets are not dependencies.
"""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.data.hub import dataset_rows
from statewise.specs import AnyRunSpec, UserError, nearest

Data = Any  # what `train`, `evaluate` and `predict` take: docs/python.md lists the kinds of objects

_LIBRARY_TYPES = {
    "pandas": ("DataFrame", "Series"),
    "polars": ("DataFrame", "LazyFrame", "Series"),
    "datasets": ("Dataset", "DatasetDict", "IterableDataset", "Column"),
    "nltk": ("Tree",),
}
_DATES = ("DatetimeIndex", "PeriodIndex")
_NUMBERS = "biufc"  # kinds of NumPy's types


def library_type(data: Data) -> str:
    """`pandas.DataFrame`, `datasets.Dataset` and so on, subclasses too; an empty string for every other type."""
    for kind in type(data).__mro__:
        library = kind.__module__.partition(".")[0]
        if kind.__name__ in _LIBRARY_TYPES.get(library, ()):
            return f"{library}.{kind.__name__}"
    return ""


def is_missing(cell: Any) -> bool:
    """None, NaN, NaT, or the NA of pandas."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(cell, np.datetime64):
        return bool(np.isnat(cell))
    return isinstance(cell, float) and cell != cell


def shown(item: Any) -> str:
    """For messages: the beginning of the value, and its type."""
    text = repr(item)
    return f"{text if len(text) <= 60 else text[:59] + '…'} ({type(item).__name__})"


def listed(values: Any) -> list[Any] | None:
    """The items of a list or of one column; None if it is neither."""
    if isinstance(values, list | tuple):
        return list(values)
    if isinstance(values, np.ndarray | torch.Tensor):
        return values.tolist() if values.ndim == 1 else None
    match library_type(values):
        case "pandas.Series":
            return list(values.tolist())
        case "polars.Series":
            return list(values.to_list())
        case "datasets.Column":
            return list(values)
    return None


class Table(NamedTuple):
    """Columns of equal length by name, and what the object is called."""

    columns: dict[str, list[Any]]
    kind: str


def table_of(data: Data, *, time_index: bool = False) -> Table | None:
    """A frame, a Dataset, a dict of columns or a list of dicts; None if `data` is something else.

    With `time_index`, the dates of a pandas index are the first column.
    """
    kind = library_type(data)
    match kind:
        case "pandas.DataFrame":
            names, columns = [str(name) for name in data.columns], {}
            for number, name in enumerate(names):
                if name in columns:
                    raise UserError(f"the DataFrame has two columns {name!r}", fix="rename one of them")
                columns[name] = data.iloc[:, number].tolist()
            if time_index and (dates := index_of_dates(data)) is not None:
                index = data.index.to_timestamp() if type(data.index).__name__ == "PeriodIndex" else data.index
                columns = {dates: index.tolist(), **columns}
        case "polars.DataFrame":
            columns = {name: data[name].to_list() for name in data.columns}
        case "polars.LazyFrame":
            return table_of(data.collect())
        case "datasets.Dataset":
            rows = list(dataset_rows(data, None, name="in memory"))
            columns = {name: [row.cells[at] for row in rows] for at, name in enumerate(data.column_names)}
        case "datasets.DatasetDict":
            raise UserError(
                f"the DatasetDict holds several datasets: {', '.join(data)}",
                fix=f"give one: data[{next(iter(data))!r}]",
            )
        case "datasets.IterableDataset":
            raise UserError("an IterableDataset has no end that is known", fix="give a Dataset")
        case _ if isinstance(data, Mapping):
            columns = {str(name): _column(name, values) for name, values in data.items()}
        case _ if isinstance(data, list | tuple) and data and isinstance(data[0], Mapping):
            columns = _of_records(data)
        case _:
            return None
    lengths = {name: len(cells) for name, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise UserError(f"the columns have unequal lengths: {sizes}", fix="give as many rows of each")
    if not any(lengths.values()):
        raise UserError(f"the {type(data).__name__} has no rows", fix="give at least one")
    return Table(_without_nesting(columns), type(data).__name__)


def index_of_dates(data: Data) -> str | None:
    """The column name for the dates in the index of a pandas object; None if it has no such index."""
    if not library_type(data).startswith("pandas.") or type(data.index).__name__ not in _DATES:
        return None
    if data.index.name is not None:
        return str(data.index.name)
    taken = set(map(str, data.columns)) if library_type(data) == "pandas.DataFrame" else {str(data.name)}
    return next(name for name in ("time", "datetime", "timestamp", "date", "index") if name not in taken)


def frame_like(data: Data, columns: Mapping[str, Any]) -> Any:
    """Columns as the same type as `data`; a pandas object keeps dates in its index if `data` has them there."""
    match library_type(data):
        case "pandas.DataFrame" | "pandas.Series" as kind:
            pandas = sys.modules["pandas"]
            frame = pandas.DataFrame(dict(columns))
            if (name := index_of_dates(data)) is not None:
                frame = frame.set_index(name).rename_axis(data.index.name)
                if type(data.index).__name__ == "PeriodIndex":
                    frame.index = frame.index.to_period(data.index.freq)
            return frame.iloc[:, -1].rename(data.name) if kind == "pandas.Series" else frame
        case "polars.DataFrame":
            return type(data)(dict(columns))
        case "datasets.Dataset":
            return type(data).from_dict(dict(columns))
        case _:
            return dict(columns)


def _column(name: Any, values: Any) -> list[Any]:
    cells = listed(values)
    if cells is None:
        raise UserError(f"column {name!r} is {shown(values)}, expected a list", fix="give a list with a cell a row")
    return cells


def _of_records(rows: Sequence[Any]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {str(name): [] for name in rows[0]}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or {str(name) for name in row} != columns.keys():
            found = f"the keys {', '.join(map(str, row))}" if isinstance(row, Mapping) else f"{shown(row)}"
            raise UserError(f"row {number} has {found}, but row 0 has {', '.join(columns)}", fix="use the same keys")
        for name, cell in row.items():
            columns[str(name)].append(cell)
    return columns


def _without_nesting(columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """A column of dicts as one column for each key: `translation.de`."""
    flat: dict[str, list[Any]] = {}
    for name, cells in columns.items():
        if not cells or not isinstance(cells[0], Mapping):
            flat[name] = cells
            continue
        for key in cells[0]:
            flat[f"{name}.{key}"] = [cell.get(key) if isinstance(cell, Mapping) else None for cell in cells]
    return flat


def array_of(data: Data) -> NDArray[Any] | None:
    """Numbers as one array, whatever its shape; None if `data` does not hold numbers, or rows of unequal lengths."""
    if isinstance(data, torch.Tensor):
        tensor = data.detach().cpu()
        return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
    if isinstance(data, np.ndarray):
        return data if data.dtype.kind in _NUMBERS else None
    if library_type(data) in ("pandas.Series", "polars.Series"):
        array = np.asarray(data.to_numpy())
        return array if array.dtype.kind in _NUMBERS else None
    if not isinstance(data, list | tuple) or not _begins_with_number(data):
        return None
    try:
        array = np.array([array_of(item) if isinstance(item, torch.Tensor) else item for item in data])
        return array.astype(np.float64) if array.dtype.kind == "O" else _only_numbers(array, data)
    except (ValueError, TypeError) as error:
        if isinstance(error, UserError):
            raise
        return None


def arrays_of(data: Data) -> list[NDArray[Any]] | None:
    """As `array_of`, of each item of a list; None if one of them does not hold numbers."""
    if not isinstance(data, list | tuple) or not data or isinstance(data[0], int | float | complex):
        return None
    arrays = [array_of(item) for item in data]
    return None if any(array is None for array in arrays) else [array for array in arrays if array is not None]


def _only_numbers(array: NDArray[Any], data: Sequence[Any]) -> NDArray[Any]:
    if array.dtype.kind not in _NUMBERS:
        number = next((number for number, item in enumerate(data) if isinstance(item, str | bytes)), 0)
        raise UserError(f"row {number} is {shown(data[number])}, expected a number", fix="give numbers alone")
    return array


def _begins_with_number(data: Any) -> bool:
    while isinstance(data, list | tuple) and data:
        data = data[0]
    if isinstance(data, np.ndarray | torch.Tensor):
        return array_of(data) is not None
    return isinstance(data, int | float | complex | np.number) and not isinstance(data, bool)


class Role(NamedTuple):
    """What a column is for: the setting that names it, and how it is recognised where the setting has its default."""

    what: str  # for messages: "text", "label"
    setting: str  # empty: the task has no such setting
    column: str | int | None
    default: str | int | None
    common_names: Collection[str]
    fits: Callable[[Any], bool]  # whether a cell can be one
    otherwise: str = ""  # added to the error if no column fits


class Rows(NamedTuple):
    """The cells of each role. `names` are their columns, empty if the data has no columns."""

    columns: list[list[Any]]
    names: list[str]

    def __len__(self) -> int:
        return len(self.columns[0])


def rows_of(data: Data, roles: Sequence[Role], *, training: bool) -> Rows:
    """One or two cells of each row: of a table, a list of pairs, a pair of columns, or a list."""
    expected = f"({', '.join(role.what for role in roles)})" if len(roles) > 1 else f"a {roles[0].what}"
    table = table_of(data)
    if table is not None:
        names = _choose_columns(table, roles, training=training)
        return Rows([table.columns[name] for name in names], names)
    if len(roles) == 2 and isinstance(data, tuple) and len(data) == 2 and not isinstance(data[0], tuple | str):
        first, second = listed(data[0]), listed(data[1])
        if first is not None and second is not None:
            if len(first) != len(second):
                raise UserError(f"{len(first)} {roles[0].what}s, but {len(second)} {roles[1].what}s")
            return Rows([first, second], [])
    items = listed(data)
    if items is None:
        raise UserError(
            f"data of type {type(data).__name__} cannot be read by this task",
            fix=f"give a list with {expected} for each row, a DataFrame, a Dataset or the name of a file",
        )
    if not items:
        raise UserError("the data is an empty list", fix="give at least one row")
    if len(roles) == 1:
        return Rows([items], [])
    for number, item in enumerate(items):
        if not isinstance(item, list | tuple) or len(item) != len(roles):
            raise UserError(f"row {number} is {shown(item)}, expected {expected}", fix=f"give each row as {expected}")
    return Rows([list(column) for column in zip(*items)], [])


def _choose_columns(table: Table, roles: Sequence[Role], *, training: bool) -> list[str]:
    """The column of each role: the named one, else the one with a common name, else the only one that fits."""
    chosen: list[str | None] = [_named_column(role, table, training=training) for role in roles]
    for at, role in enumerate(roles):
        common = [name for name in table.columns if name.lower() in role.common_names and name not in chosen]
        if chosen[at] is None and len(common) == 1:
            chosen[at] = common[0]
    for at, role in enumerate(roles):
        fitting = [name for name, cells in table.columns.items() if name not in chosen and role.fits(_first(cells))]
        alike = [other for other, name in zip(roles, chosen) if name is None and other.fits is role.fits]
        if chosen[at] is None and len(fitting) == len(alike):  # source, then target
            chosen[at] = fitting[0]
        if chosen[at] is None:
            names = list(table.columns)
            if not names:
                raise UserError(f"the {table.kind} has no columns", fix=f"name the column of the {role.what}")
            raise UserError(
                f"it is not clear which column of the {table.kind} holds the {role.what}: {', '.join(names)}",
                fix=_how_to_name(role, names[0], training=training) + role.otherwise,
            )
    return [name for name in chosen if name is not None]


def _named_column(role: Role, table: Table, *, training: bool) -> str | None:
    names = list(table.columns)
    if isinstance(role.column, str) and role.column in names:
        return role.column
    if role.column == role.default:
        return None
    if isinstance(role.column, int) and 0 <= role.column < len(names):
        return names[role.column]
    raise UserError(
        f"the {table.kind} has no column {role.column!r} for the {role.what}",
        fix=f"{nearest(str(role.column), names)}; {_how_to_name(role, names[0], training=training)}",
    )


def _how_to_name(role: Role, name: str, *, training: bool) -> str:
    if not role.setting:
        return f'give that column alone, as in data["{name}"]'
    if training:
        return f'say which, as in settings={{"{role.setting}": "{name}"}}'
    return f"rename that column to {role.column if isinstance(role.column, str) else role.what!r}"


def _first(cells: Sequence[Any]) -> Any:
    return next((cell for cell in cells if not is_missing(cell)), None)


class MemoryFile(NamedTuple):
    """A file, and the settings (`data.*`) to read it with, except the one that names the file."""

    name: str
    content: bytes
    data: Any  # the data settings of the task
    rows: int
    first: int = 1  # the line of row 0
    note: str = ""  # choices made for the user
    unit: str = "row"

    def changes(self, before: Any) -> dict[str, Any]:
        """The settings that differ from `before`: `{"data.text": "review"}`."""
        names = type(self.data).model_fields
        return {
            f"data.{name}": getattr(self.data, name)
            for name in names
            if getattr(self.data, name) != getattr(before, name)
        }

    def run_spec(self, spec: AnyRunSpec, folder: Path) -> AnyRunSpec:
        """The spec of a run that trains on this file in its `folder`."""
        named = {spec.main_data.removeprefix("data."): (str((folder / self.name).absolute()),)}
        return spec.model_copy(update={"data": self.data.model_copy(update=named)})

    def summary(self, folder: Path) -> str:
        """One line for people."""
        count = f"{self.rows:,} {self.unit}{'' if self.rows == 1 else 's'}"
        return f"data from memory: {count}, kept as {folder / self.name}{self.note}"

    @contextmanager
    def errors_by_row(self, folder: Path) -> Iterator[Path]:
        """The file in `folder`. Errors about its lines are raised as errors about rows: the user has no such file."""
        file = folder / self.name
        names = "|".join(re.escape(name) for name in sorted({str(file), str(file.absolute())}, key=len, reverse=True))

        def row(line: str) -> str:
            return f"row {int(line) - self.first}"

        def by_row(text: str) -> str:
            text = re.sub(rf"(?:{names})(, series '[^']*')?(?: line |:)(\d+)", lambda m: row(m[2]) + (m[1] or ""), text)
            text = re.sub(r"\blines (\d+) and (\d+)\b", lambda m: f"{row(m[1])} and {row(m[2])}", text)
            text = re.sub(rf"(?:{names}) (?=row \d)", "", text)
            return re.sub(rf"'(?:{names})'|(?:{names})", "the data", text)

        try:
            yield file
        except UserError as error:
            raise UserError(by_row(error.what), fix=by_row(error.fix)) from None

"""Time series of real values, and reading them from tables and arrays.

T time, C channels to forecast, X covariates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from statewise.data.arrays import read_mat, read_npy, read_npz
from statewise.data.date_format import is_date
from statewise.data.hub import hub_name
from statewise.data.series_table import LARGEST, Decimal, SeriesTable, read_series_rows, read_series_table
from statewise.data.series_time import TIME_NAMES, in_order, index_time, on_grid, parse_times
from statewise.data.table import SAMPLE, no_column
from statewise.specs import UserError, setting

Missing = Literal["keep", "forward", "refuse"]
NO_TIME = "none"
_TABLES = (".csv", ".tsv", ".txt")
_ARRAYS = (".npy", ".npz", ".mat")


@dataclass(frozen=True)
class Series:
    """One series. A missing value is NaN; time is datetime64, float64, or the row's number."""

    id: str
    time_T: NDArray[Any]
    values_TC: NDArray[np.float64]
    covariates_TX: NDArray[np.float64]
    channels: tuple[str, ...]
    covariates: tuple[str, ...] = ()
    where: str = ""  # the file, for messages
    part: Literal["", "train", "validation", "test"] = ""  # if the file says so

    def __post_init__(self) -> None:
        assert self.values_TC.shape == (len(self.time_T), len(self.channels)), (self.values_TC.shape, self.channels)
        assert self.covariates_TX.shape == (len(self.time_T), len(self.covariates))

    def __len__(self) -> int:
        return len(self.time_T)

    @property
    def missing(self) -> int:
        """The number of missing target values."""
        return int(np.isnan(self.values_TC).sum())

    def filled_forward(self) -> "Series":
        """With each missing value replaced by the last one before it; leading ones stay missing."""
        return replace(self, values_TC=fill_forward(self.values_TC), covariates_TX=fill_forward(self.covariates_TX))


def make_series(
    values: NDArray[Any],
    *,
    id: str = "series",
    time: NDArray[Any] | None = None,
    covariates: NDArray[Any] | None = None,
    channels: Sequence[str] = (),
    covariate_names: Sequence[str] = (),
    where: str = "",
    part: Literal["", "train", "validation", "test"] = "",
) -> Series:
    """A series from arrays in memory: `[T]` or `[T, C]`."""
    values_TC = _columns(values, what="values", where=where or id)
    covariates_TX = values_TC[:, :0] if covariates is None else _columns(covariates, what="covariates", where=where)
    time_T = index_time(len(values_TC)) if time is None else np.asarray(time)
    if len(time_T) != len(values_TC) or len(covariates_TX) != len(values_TC):
        raise UserError(
            f"{where or id!r}: {len(values_TC)} values, {len(time_T)} times and {len(covariates_TX)} covariates",
            fix="give as many of each",
        )
    names = tuple(channels) or tuple(f"channel {c}" for c in range(values_TC.shape[1]))
    also = tuple(covariate_names) or tuple(f"covariate {x}" for x in range(covariates_TX.shape[1]))
    return Series(id, time_T, values_TC, covariates_TX, names, also, where, part)


def fill_forward(values_TC: NDArray[np.float64]) -> NDArray[np.float64]:
    seen_TC = ~np.isnan(values_TC)
    last_TC = np.maximum.accumulate(np.where(seen_TC, np.arange(len(values_TC))[:, None], 0), axis=0)
    return np.take_along_axis(values_TC, last_TC, axis=0)


def read_series(
    paths: str | Path | Sequence[str | Path],
    *,
    time: str | None = None,
    targets: Sequence[str] = (),
    covariates: Sequence[str] = (),
    id: str | None = None,
    header: Literal["yes", "no"] = "yes",
    layout: Literal["columns", "rows"] = "columns",
    missing: Missing = "keep",
    unsorted: Literal["refuse", "sort"] = "refuse",
    repeated: Literal["refuse", "first", "last"] = "refuse",
    irregular: Literal["refuse", "keep", "fill"] = "refuse",
    decimal: Decimal = "auto",
) -> list[Series]:
    """Every series in the files: CSV and TSV tables (also `.gz`), NumPy arrays, MATLAB piano rolls.

    In a table `time` names the time column (`"none"`: row numbers are the time; None: a column with a common name, or
    one of dates), `targets` the columns to forecast (default: all others), `id` the column that identifies the series.
    Without a `header`, columns are called `column 1` and so on. With `layout="rows"` a line is a series: its name, then
    its values. `irregular="fill"` inserts rows of missing values into gaps; `repeated` keeps one of the rows with the
    same time. `decimal` is the decimal mark; auto: a comma if some number can be read in no other way.
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    refuse_standard_input(paths)
    series: list[Series] = []
    for path in map(Path, paths):
        kind = _kind(path)
        if kind in _TABLES and layout == "rows":
            if named := [*targets, *covariates, *(name for name in (time, id) if name not in (None, NO_TIME))]:
                raise UserError(
                    f"column {named[0]!r} is named, but with data.layout = rows the columns are time steps",
                    fix="leave data.time, data.id, data.targets and data.covariates out",
                )
            rows = read_series_rows(path, decimal=decimal, header=header)
            of_file = [make_series(values, id=name, channels=["value"], where=str(path)) for name, values in rows]
        elif kind in _TABLES:
            table = read_series_table(path, decimal=decimal, header=header)
            of_file = _of_table(
                table,
                targets=targets,
                covariates=covariates,
                id=id,
                time=time_column(table, time, id=id),
                unsorted=unsorted,
                repeated=repeated,
                irregular=irregular,
            )
        else:
            of_file = _of_arrays(path, kind=kind)
        alone = len(of_file) == 1 and not id and layout == "columns"
        if len(paths) > 1:
            of_file = [replace(s, id=_stem(path) if alone else f"{_stem(path)}/{s.id}") for s in of_file]
        series += of_file
    _check_alike(series)
    return [without_missing(s, missing) for s in series]


def refuse_standard_input(paths: Sequence[str | Path]) -> None:
    if "-" in map(str, paths):
        raise UserError("series cannot be read from standard input: it has no ending to go by", fix="name files")


def _kind(path: Path) -> str:
    if hub_name(path) is not None:
        return _TABLES[0]
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else (suffixes or [""])[-1]
    if kind in _TABLES or (kind in _ARRAYS and suffixes[-1] != ".gz"):
        return kind
    raise UserError(
        f"{str(path)!r} is not a known format of series",
        fix=f"name it {', '.join(_TABLES)} (or those with .gz) or {', '.join(_ARRAYS)}",
    )


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]


def _of_arrays(path: Path, *, kind: str) -> list[Series]:
    if not path.is_file():
        raise UserError(f"{str(path)!r} does not exist or is no file")
    read = {".npy": read_npy, ".npz": read_npz, ".mat": read_mat}[kind]
    return [
        make_series(
            a.values, id=a.name or _stem(path), time=a.time, covariates=a.covariates, where=str(path), part=a.part
        )
        for a in read(path)
    ]


def _of_table(
    table: SeriesTable,
    *,
    time: str,
    targets: Sequence[str],
    covariates: Sequence[str],
    id: str | None,
    unsorted: Literal["refuse", "sort"],
    repeated: Literal["refuse", "first", "last"],
    irregular: Literal["refuse", "keep", "fill"],
) -> list[Series]:
    special = [name for name in (None if time == NO_TIME else time, id) if name]
    wanted = [*special, *targets, *covariates]
    _refuse_other_columns(table, time=time, id=id, targets=targets, covariates=covariates)
    if twice := sorted({name for name in wanted if wanted.count(name) > 1}):
        raise UserError(f"{table.where}: column {twice[0]!r} is named for two purposes", fix="name it once")
    if not targets:
        targets = [name for name in table.columns if name not in wanted]
        unnamed = [name for name in targets if name in table.unnamed]
        if unnamed or not targets:
            raise UserError(
                f"{table.where}: {unnamed[0]} has no name"
                if unnamed
                else f"{table.where} has no column left to forecast",
                fix=f"name the columns to forecast: {setting('data.targets', 'COLUMN')}",
            )
    values_TC, covariates_TX = table.numbers(targets), table.numbers(covariates)
    time_T = index_time(len(table.lines))
    if time != NO_TIME:
        time_T = parse_times(table.cells(time), table.lines, table.where)
    series = []
    for name, rows_T in _by_id(table, id).items():
        where = f"{table.where}, series {name!r}" if id else table.where
        own_T = index_time(len(rows_T))
        if time != NO_TIME:
            order_T = in_order(time_T[rows_T], table.lines[rows_T], where, unsorted=unsorted, repeated=repeated)
            rows_T = rows_T[order_T]
            own_T = time_T[rows_T]
        own_T, place_T = on_grid(own_T, table.lines[rows_T], where, irregular=irregular)
        values, also = (np.full((len(own_T), a.shape[1]), np.nan) for a in (values_TC, covariates_TX))
        values[place_T], also[place_T] = values_TC[rows_T], covariates_TX[rows_T]
        series.append(Series(name, own_T, values, also, tuple(targets), tuple(covariates), table.where))
    return series


def _refuse_other_columns(
    table: SeriesTable, *, time: str, id: str | None, targets: Sequence[str], covariates: Sequence[str]
) -> None:
    """Refuse names of columns that the table lacks, with the setting."""
    times, ids = [] if time == NO_TIME else [time], [id] if id else []
    roles = {"data.time": times, "data.id": ids, "data.targets": targets, "data.covariates": covariates}
    absent = {path: [name for name in names if name not in table.columns] for path, names in roles.items()}
    lacking = {path: names[0] for path, names in absent.items() if names}
    if not lacking:
        return
    if "data.time" in lacking and (dated := time_column(table, None, id=id)) != NO_TIME:
        raise UserError(
            f"there is no column {time!r} in {table.where}; it has: {', '.join(table.columns)}",
            fix=f"if the time is in {dated!r}: {setting('data.time', dated)}",
        )
    raise no_column(table.where, lacking, {name: table.cells(name)[:SAMPLE] for name in table.columns})


def time_column(table: SeriesTable, time: str | None, *, id: str | None) -> str:
    """The named one, else one with a common name, else the first with dates, else `NO_TIME`."""
    if time is not None:
        return time
    others = [name for name in table.columns if name != id]
    usual = (name for name in others if name.lower() in TIME_NAMES)
    return next(usual, next((name for name in others if is_date(table.cells(name)[0])), NO_TIME))


def _by_id(table: SeriesTable, id: str | None) -> dict[str, NDArray[np.int64]]:
    """Rows of each series, in the file's order."""
    if id is None:
        return {_stem(Path(table.where)): np.arange(len(table.lines))}
    grouped: dict[str, list[int]] = {}
    for row, name in enumerate(table.cells(id)):
        if not name:
            raise UserError(f"{table.where}:{table.lines[row]}: column {id!r} is empty", fix="name the row's series")
        grouped.setdefault(name, []).append(row)
    return {name: np.array(rows) for name, rows in grouped.items()}


def _columns(values: NDArray[Any], *, what: str, where: str) -> NDArray[np.float64]:
    """Numbers as float64 `[T, C]`; anything else is refused."""
    array = np.asarray(values)
    if array.ndim not in (1, 2) or array.dtype.kind not in "biuf":
        raise UserError(
            f"{where!r}: {what} of type {array.dtype} and shape {list(array.shape)}, expected numbers [T] or [T, C]"
        )
    array = (array[:, None] if array.ndim == 1 else array).astype(np.float64)
    if not len(array) or not (array.shape[1] or what == "covariates"):
        raise UserError(f"{where!r}: {what} of shape {list(np.shape(values))} hold nothing")
    if (far := np.argwhere(np.abs(array) > LARGEST)).size:
        row, column = far[0]
        kind = "an infinite number" if np.isinf(array[row, column]) else "a number too large to be squared"
        raise UserError(f"{where!r}: {what} hold {kind} in row {row}, column {column}")
    return array


def _check_alike(all_series: Sequence[Series]) -> None:
    """Refuse series with different columns or the same name: one model reads them all."""
    for other in all_series[1:]:
        first = all_series[0]
        if (other.channels, other.covariates) != (first.channels, first.covariates):
            raise UserError(
                f"series {other.id!r} of {other.where!r} has the columns {[*other.channels, *other.covariates]}, but "
                f"{first.id!r} of {first.where!r} has {[*first.channels, *first.covariates]}",
                fix="give series with the same columns",
            )
    seen: dict[str, str] = {}
    for series in all_series:
        if series.id in seen:
            raise UserError(f"two series are called {series.id!r}: in {seen[series.id]!r} and in {series.where!r}")
        seen[series.id] = series.where


def without_missing(series: Series, missing: Missing) -> Series:
    """Missing values are kept, replaced by the last value before, or refused."""
    match missing:
        case "keep":
            return series
        case "forward":
            return series.filled_forward()
        case "refuse":
            absent = np.argwhere(np.isnan(np.concatenate([series.values_TC, series.covariates_TX], axis=1)))
            if len(absent):
                row, column = absent[0]
                raise UserError(
                    f"{series.where!r}, series {series.id!r}: {len(absent)} values are missing, the first at "
                    f"{series.time_T[row]} in {[*series.channels, *series.covariates][column]!r}",
                    fix=f"fill them in, mask them, {setting('data.missing', 'keep')}, or repeat the last value: "
                    f"{setting('data.missing', 'forward')}",
                )
            return series

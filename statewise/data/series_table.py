"""A table of numbers as text: CSV, TSV, semicolons; every complaint names the file and the line."""

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.data.date_format import is_date
from statewise.data.hub import HubName, hub_name, read_hub
from statewise.data.lines import read_bytes
from statewise.specs import UserError, setting

# What spreadsheets, R, pandas and databases write for a value that is not there.
MISSING = frozenset({"", "nan", "na", "n/a", "#n/a", "null", "none", "nil", "missing"})
_DELIMITERS = (",", ";", "\t", "|")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DECIMAL_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d*),\d+([eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([, ]\d{3})+(\.\d*)?", re.ASCII)
_BY_POINTS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+", re.ASCII)  # thousands in a table with decimal commas
_PLAIN = frozenset("0123456789+-eE")
Decimal = Literal["auto", ".", ","]
LARGEST = 1e150  # the square of a larger number is infinite


class SeriesTable:
    """Columns of cells by name, and the line each row starts on."""

    def __init__(
        self,
        columns: Sequence[str],
        rows: list[list[str]],
        lines: Sequence[int],
        *,
        where: str,
        unnamed: Sequence[str],
        delimiter: str = ",",
        decimal: str = ".",
        headed: bool = True,
    ) -> None:
        self.headed = headed
        self.columns = tuple(columns)
        self._places = {name: at for at, name in enumerate(self.columns)}
        self.unnamed = frozenset(unnamed)  # names of ours, for columns that had none
        self.lines = np.array(lines, dtype=np.int64)
        self.where = where
        self.delimiter = delimiter
        self.decimal = decimal
        self._rows = rows

    def cells(self, column: str) -> list[str]:
        at = self._places[column]
        return [row[at].strip() for row in self._rows]

    def numbers(self, columns: Sequence[str]) -> NDArray[np.float64]:
        """`[rows, columns]`; a missing value is NaN, anything else that is not a number is refused by its place."""
        values = np.empty((len(self._rows), len(columns)))
        for index, column in enumerate(columns):
            cells = self.cells(column)
            plain = self._plain(cells)
            values[:, index] = plain or [self._number(cell, column=column, row=row) for row, cell in enumerate(cells)]
            far = np.flatnonzero(np.abs(values[:, index]) > LARGEST)
            if len(far):
                where = f"{self.where}:{self.lines[far[0]]}"
                raise UserError(
                    f"{where}: column {column!r} holds {cells[far[0]]!r}, too large to be squared",
                    fix="write it in a larger unit",
                )
        return values

    def _plain(self, cells: Sequence[str]) -> list[float]:
        """The fast path for columns of plain numbers; empty where each cell has to be looked at."""
        if not set("".join(cells)) <= _PLAIN | {self.decimal}:
            return []
        try:
            numbers = [float(cell.replace(self.decimal, ".")) if cell else math.nan for cell in cells]
        except ValueError:
            return []
        return [] if math.inf in numbers or -math.inf in numbers else numbers

    def _number(self, cell: str, *, column: str, row: int) -> float:
        where = f"{self.where}:{self.lines[row]}"
        if self.decimal == "," and (_DECIMAL_COMMA.fullmatch(cell) or _BY_POINTS.fullmatch(cell)):
            cell = cell.replace(".", "").replace(",", ".")
        elif self.decimal == "," and "." in cell and _NUMBER.fullmatch(cell):
            raise UserError(
                f"{where}: column {column!r} holds {cell!r}, but decimals of this table have a comma",
                fix="write all numbers in one way",
            )
        return _number(cell, column=column, where=where)

    def written(self, value: float) -> str:
        """A number with the table's decimal mark."""
        return f"{value:.10g}".replace(".", self.decimal)


def read_series_table(path: Path, *, decimal: Decimal = "auto", header: Literal["yes", "no"] = "yes") -> SeriesTable:
    """The first line names the columns; the delimiter is the most frequent one in it. A hub dataset is a table too.

    Without a `header`, columns are called `column 1` and so on.
    """
    hub = hub_name(path)
    if hub is not None:
        return _of_hub(hub, where=str(path))
    cells = _cells(path, header)
    rows, lines = cells.rows, cells.lines
    names, unnamed = [f"column {number}" for number in range(1, len(rows[0]) + 1)], list[str]()
    if header == "yes":
        names, unnamed = _header([cell.strip() for cell in rows[0]], where=f"{path}:{lines[0]}")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(names):
            raise UserError(
                f"{path}:{line} has {len(row)} cells, but there are {len(names)} columns: {', '.join(names[:20])}",
                fix="give every row a cell for each column; an empty one is a missing value",
            )
    values = cells.values(header)
    if not values.rows:
        raise UserError(f"{str(path)!r} holds no rows below its line of column names")
    return SeriesTable(
        names,
        values.rows,
        values.lines,
        where=str(path),
        unnamed=unnamed,
        delimiter=cells.delimiter,
        decimal=values.decimal(decimal),
        headed=header == "yes",
    )


def read_series_rows(
    path: Path, *, decimal: Decimal = "auto", header: Literal["yes", "no"] = "yes"
) -> list[tuple[str, NDArray[np.float64]]]:
    """One series a line: its name, and its values up to the last one present. Without names, series are numbered."""
    if hub_name(path) is not None:
        raise UserError(f"{str(path)!r} has columns: data.layout = rows is for files")
    values = _cells(path, header).values(header)
    if not values.rows:
        raise UserError(f"{str(path)!r} holds no rows below its line of column names")
    first = [row[0].strip() for row in values.rows]
    named = not all(_NUMBER.fullmatch(cell) for cell in first)
    mark = values.decimal(decimal)
    series = []
    for number, (row, line) in enumerate(zip(values.rows, values.lines)):
        cells = [cell.strip() for cell in (row[1:] if named else row)]
        while cells and not cells[-1]:
            cells.pop()
        if not cells:
            raise UserError(f"{path}:{line} holds no value", fix="leave the line out")
        table = SeriesTable(
            ["value"], [[cell] for cell in cells], [line] * len(cells), where=str(path), unnamed=(), decimal=mark
        )
        series.append((first[number] if named else str(number), table.numbers(["value"])[:, 0]))
    return series


class _Cells(NamedTuple):
    """The cells of a file as written."""

    rows: list[list[str]]
    lines: list[int]
    delimiter: str

    def values(self, header: Literal["yes", "no"]) -> "_Cells":
        return self if header == "no" else self._replace(rows=self.rows[1:], lines=self.lines[1:])

    def decimal(self, wanted: Decimal) -> str:
        return wanted if wanted != "auto" else "." if self.delimiter == "," else _decimal(self.rows)


def _cells(path: Path, header: Literal["yes", "no"]) -> _Cells:
    text = _decoded(path)
    delimiter = _delimiter(text, header)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    begin = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row) or len(row) > 1:  # a line of nothing is no row
                rows.append(row)
                lines.append(begin)
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path}:{begin} is not CSV: {error}", fix="check the quotes on that line") from None
    if not rows:
        raise UserError(f"{str(path)!r} holds no rows")
    return _Cells(rows, lines, delimiter)


def _of_hub(hub: HubName, *, where: str) -> SeriesTable:
    rows = read_hub(hub.name, None, config=hub.config, split=hub.split)
    if not rows:
        raise UserError(f"{where!r} holds no rows")
    cells = [["" if cell is None else str(cell) for cell in row.cells] for row in rows]
    return SeriesTable(rows[0].names, cells, [row.where.line for row in rows], where=where, unnamed=())


def _decoded(path: Path) -> str:
    data = read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{line} is not UTF-8 text: it holds 0x{data[error.start]:02x}",
            fix="convert it first, for example with iconv -f LATIN1 -t UTF-8",
        ) from None
    if "\0" in text:
        raise UserError(f"{str(path)!r} is a binary file, not text", fix="save the table as CSV")
    return text


def _delimiter(text: str, header: Literal["yes", "no"]) -> str:
    first = next((line for line in text.splitlines() if line.strip()), "")
    outside = re.sub(r'"[^"]*"', "", first)
    if header == "no":  # among values, a comma may be the decimal mark
        return next((mark for mark in _DELIMITERS[1:] if mark in outside), _DELIMITERS[0])
    return max(_DELIMITERS, key=outside.count)


def _decimal(rows: Sequence[Sequence[str]]) -> str:
    """A comma if some number can be read in no other way and none has a point; 1,234 alone is ambiguous."""
    commas = points = False
    for row in rows:
        for cell in map(str.strip, row):
            commas = commas or bool(_DECIMAL_COMMA.fullmatch(cell) and not _THOUSANDS.fullmatch(cell))
            points = points or bool("." in cell and _NUMBER.fullmatch(cell) and not _BY_POINTS.fullmatch(cell))
    return "," if commas and not points else "."


def _header(names: list[str], *, where: str) -> tuple[list[str], list[str]]:
    if all(_NUMBER.fullmatch(name) or is_date(name) for name in names):
        raise UserError(
            f"{where} holds values, where the names of the columns should be: {', '.join(names[:4])}",
            fix=f"put a line of names first, or say that there is none: {setting('data.header', 'no')}",
        )
    unnamed = [f"column {number}" for number, name in enumerate(names, 1) if not name]
    named = [name or f"column {number}" for number, name in enumerate(names, 1)]
    if len(set(named)) < len(named):
        twice = Counter(named).most_common(1)[0][0]
        raise UserError(f"{where}: two columns are called {twice!r}", fix="give each a name of its own")
    return named, unnamed


def _number(cell: str, *, column: str, where: str) -> float:
    if _NUMBER.fullmatch(cell):
        if math.isfinite(value := float(cell)):
            return value
        raise UserError(f"{where}: column {column!r} holds {cell!r}, too large for a number of 64 bits")
    if cell.lower() in MISSING:
        return math.nan
    if _DECIMAL_COMMA.fullmatch(cell):
        fix = (
            "a comma may also stand between cells, or between thousands; write decimals with a point, or say it is "
            f"the decimal mark: {setting('data.decimal', ',')}"
        )
    elif _THOUSANDS.fullmatch(cell):
        fix = "write it without a mark between thousands"
    else:
        fix = (
            "correct it, or leave it empty if it is missing; if the column tells several series apart: "
            f"{setting('data.id', column)}; else name the columns to forecast: {setting('data.targets', 'COLUMN')}"
        )
    raise UserError(f"{where}: column {column!r} holds {cell!r}, which is not a number", fix=fix)

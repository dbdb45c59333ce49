"""Tables as data: every cell has a value for machines and a text for people."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from statewise.display import NONE, Format
from statewise.display import columns as letters

Value = float | int | str | None
_FORMULA = ("=", "+", "-", "@")

T = TypeVar("T")


class Column(NamedTuple):
    name: str  # for machines
    title: str
    unit: str = ""
    text: bool = False  # words, not numbers
    shown: bool = True  # to people; machines get all
    minor: bool = False  # left out on narrow screens


class Cell(NamedTuple):
    value: Value
    text: str


class Table(NamedTuple):
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    best: int | None = None  # the row that the verdict is about

    def as_dict(self) -> dict[str, Any]:
        return {
            "columns": [column._asdict() for column in self.columns],
            "rows": [{column.name: cell._asdict() for column, cell in zip(self.columns, row)} for row in self.rows],
        }

    def csv(self) -> str:
        titles = [f"{c.title} ({c.unit})" if c.unit else c.title for c in self.columns]
        return csv_text([titles, *([cell.value for cell in row] for row in self.rows)])

    @classmethod
    def of_texts(cls, titles: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> "Table":
        """From texts alone: words in the first columns, numbers in the others."""
        columns = tuple(Column(title, title, text=at < words) for at, title in enumerate(titles))
        return cls(columns, tuple(tuple(Cell(text, text) for text in row) for row in rows))

    def as_text(self) -> str:
        """For a terminal: words to the left, numbers to the right."""
        lines = [[column.title for column in self.columns], *([cell.text for cell in row] for row in self.rows)]
        widths = [max(map(letters, column)) for column in zip(*lines)]
        shown = []
        for line in lines:
            cells = []
            for text, width, column in zip(line, widths, self.columns):
                blanks = " " * (width - letters(text))
                cells.append(f"{text}{blanks}" if column.text else f"{blanks}{text}")
            shown.append("  ".join(cells).rstrip())
        return "\n".join(shown)

    def for_people(self) -> "Table":
        kept = [at for at, column in enumerate(self.columns) if column.shown]
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return self._replace(columns=tuple(self.columns[at] for at in kept), rows=rows)


def csv_text(rows: Iterable[Iterable[Value]]) -> str:
    """RFC 4180: with its line ends, each kind of line end in a cell is quoted. None is an empty cell.

    Text that a spreadsheet would take for a formula has an apostrophe before it.
    """
    out = io.StringIO()
    csv.writer(out).writerows([[_inert(cell) for cell in row] for row in rows])
    return out.getvalue()


def _inert(cell: Value) -> Value:
    if isinstance(cell, str) and cell.startswith(_FORMULA):
        try:
            float(cell)
        except ValueError:
            return f"'{cell}"
    return cell


def table_of(items: Iterable[T], *columns: tuple[Column, Callable[[T], Value | Cell], Format | None]) -> Table:
    """One row an item: each column with its value and, for numbers, their format. A cell has its own text."""

    def cell(value: Value | Cell, form: Format | None) -> Cell:
        if isinstance(value, Cell):
            return value
        return words(value) if isinstance(value, str) else number(value, form or str)

    rows = [tuple(cell(value(item), form) for _, value, form in columns) for item in items]
    return Table(tuple(column for column, _, _ in columns), tuple(rows))


def words(value: str) -> Cell:
    return Cell(value, value)


def number(value: float | None, form: Format) -> Cell:
    return Cell(None, NONE) if value is None else Cell(value, form(value))

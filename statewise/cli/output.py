"""Printing: messages, results, JSON and tables. No other module of this folder prints."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from statewise.display import safe, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from statewise.tasks import Report


def tell(text: object = "", *, error: bool = False, end: str = "\n", flush: bool = False) -> None:
    """A message on standard output, or on standard error."""
    print(safe(str(text)), file=sys.stderr if error else sys.stdout, end=end, flush=flush)


def put(text: str, *, end: str = "\n") -> None:
    """A result on standard output: safe on a terminal, unchanged into a file or another program."""
    if sys.stdout.isatty():
        text = safe(text)
    else:
        text = "".join(visible(c) if "\ud800" <= c <= "\udfff" else c for c in text)
    print(text, end=end, flush=not end)


def make_table(*headings: str, **options: Any) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(*headings, box=SIMPLE_HEAD, pad_edge=False, **options)


def print_json(value: Any) -> None:
    """Strict JSON on standard output; numbers that are not finite become null."""
    from statewise.disk import for_json

    print(json.dumps(for_json(value), indent=1, allow_nan=False))


def print_report(report: "Report", *, title: str, first: str) -> None:
    """The metrics of an evaluation as tables; `first` heads the first column."""
    from statewise.display import make_console

    console = make_console()
    for table in _tables(console, title, (first, *report.columns), report.rows, bold=report.own):
        console.print(table)
    console.print(report.note, highlight=False, markup=False)
    if report.warning:
        console.print(f"warning: {report.warning}", highlight=False, markup=False)
    for more in report.more:
        for table in _tables(console, more.title, more.columns, more.rows):
            console.print(table)


def _tables(
    console: "Console",
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    bold: int | None = None,
) -> "list[Table]":
    """One table, or several below each other where a terminal is too narrow for one; the first column is in each."""
    from rich.cells import cell_len
    from rich.markup import escape
    from rich.table import Table

    def widest(texts: Iterable[str]) -> int:
        return max(map(cell_len, texts), default=0)

    cells = [[row[number] for row in rows] for number in range(len(columns))]
    full = [widest([heading, *column]) for heading, column in zip(columns, cells, strict=True)]
    names = min(full[0], console.width // 3)
    narrow = [names, *(widest([*heading.split(), *cells[n]]) for n, heading in enumerate(columns[1:], start=1))]
    margin = 3  # of a column: a line and two spaces
    widths = full if sum(full) + margin * len(full) < console.width else narrow  # only headings and long names wrap
    parts: list[list[int]] = [[0]]
    for number in range(1, len(columns)):
        if len(parts[-1]) > 1 and sum(widths[n] + margin for n in (*parts[-1], number)) >= console.width:
            parts.append([0])
        parts[-1].append(number)
    tables: list[Table] = []
    for part in parts:
        tables.append(Table(title=None if tables else escape(title), title_justify="left"))
        for number in part:
            tables[-1].add_column(columns[number], justify="right" if number else "left", width=widths[number])
        for place, row in enumerate(rows):
            tables[-1].add_row(*(escape(row[n]) for n in part), style="bold" if place == bold else None)
    return tables

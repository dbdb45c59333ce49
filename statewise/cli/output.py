"""Printing: messages, results, JSON and tables. No other module of this folder prints."""

import json
import math
import sys
from typing import TYPE_CHECKING, Any

from statewise.display import safe, visible

if TYPE_CHECKING:
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
    print(json.dumps(_finite(value), indent=1, allow_nan=False))


def print_report(report: "Report", *, title: str, first: str) -> None:
    """The metrics of an evaluation as tables; `first` heads the first column."""
    from rich.markup import escape
    from rich.table import Table

    from statewise.display import make_console

    console = make_console()
    table = Table(title=escape(title), title_justify="left")
    table.add_column(first)
    for column in report.columns:
        table.add_column(column, justify="right")
    for number, row in enumerate(report.rows):
        table.add_row(*(escape(cell) for cell in row), style="bold" if number == report.own else None)
    console.print(table)
    console.print(report.note, highlight=False, markup=False)
    if report.warning:
        console.print(f"warning: {report.warning}", highlight=False, markup=False)
    for more in report.more:
        table = Table(title=escape(more.title), title_justify="left")
        for number, column in enumerate(more.columns):
            table.add_column(column, justify="right" if number else "left")
        for row in more.rows:
            table.add_row(*(escape(cell) for cell in row))
        console.print(table)


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case _:
            return value

"""Printing: messages, results, JSON and tables. No other module of this folder prints."""

import json
import math
import sys
from typing import TYPE_CHECKING, Any

from statewise.display import safe, visible

if TYPE_CHECKING:
    from rich.table import Table


def tell(text: object = "", *, error: bool = False, end: str = "\n") -> None:
    """A message on standard output, or on standard error."""
    print(safe(str(text)), file=sys.stderr if error else sys.stdout, end=end)


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

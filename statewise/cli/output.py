"""Results for machines, and text for terminals: nothing else here prints."""

import json
import math
import sys
from typing import Any

from statewise.display import safe, visible


def tell(text: object = "", *, error: bool = False, end: str = "\n") -> None:
    """A message on standard output, or on standard error."""
    print(safe(str(text)), file=sys.stderr if error else sys.stdout, end=end)


def put(text: str, *, end: str = "\n") -> None:
    """A result on standard output: safe on a terminal, unchanged into a file or another program."""
    shown = safe(text) if sys.stdout.isatty() else "".join(visible(c) if "\ud800" <= c <= "\udfff" else c for c in text)
    print(shown, end=end, flush=not end)


def print_json(value: Any) -> None:
    """Strict JSON on standard output: what is not finite becomes null, for JSON has no word for it."""
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

"""Results for machines, and text for terminals."""

import json
import math
import re
import sys
from typing import Any

from statewise.figures.letter import visible

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def safe(text: str) -> str:
    """What a model wrote, for standard output: on a terminal, what would control it is a sign."""
    return _CONTROL.sub(lambda found: visible(found[0]), text) if sys.stdout.isatty() else text


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

"""Results for machines."""

import json
import math
from typing import Any


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

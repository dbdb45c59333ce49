"""TOML and JSON that somebody else may have written: read within bounds, and refused with two exceptions alone."""

import errno
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar

_LARGEST_TOML = 1 << 21
_LARGEST_JSON = 1 << 26
_DEEPEST = 64  # tables and lists inside each other
_TOO_DEEP = f"it is nested more than {_DEEPEST} deep"
_DOTTED = re.compile(rf"(?<![^\s.=,])(?:[^\s.=,]++\s*+\.\s*+){{{_DEEPEST}}}")  # tomllib takes their number squared
T = TypeVar("T")


def read_small(path: Path, *, largest: int = _LARGEST_JSON) -> str:
    """The text of a regular file of at most `largest` bytes; OSError or ValueError (UnicodeDecodeError) otherwise."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():  # a pipe or a device would be waited for
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > largest:
            raise OSError(errno.EFBIG, f"it has more than {largest:,} bytes", str(path))
        return file.read().decode()


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file; OSError or ValueError otherwise."""
    return from_toml(read_small(path, largest=_LARGEST_TOML))


def from_toml(text: str) -> dict[str, Any]:
    """ValueError, if it is not TOML, nested too deeply, or has a number of thousands of digits."""
    if _DOTTED.search(text):
        raise ValueError(_TOO_DEEP)
    try:
        return _flat_enough(tomllib.loads(text))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def from_json(text: str | bytes) -> Any:
    """ValueError, if it is not JSON, nested too deeply, or has a number of thousands of digits."""
    try:
        return _flat_enough(json.loads(text))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _flat_enough(value: T) -> T:
    """Whoever walks through it afterwards may do so by recursion."""
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)

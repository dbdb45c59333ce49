"""TOML and JSON files: readers with bounds for files of unknown origin, and a TOML writer."""

import errno
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

_LARGEST_TOML = 1 << 21
_LARGEST_JSON = 1 << 26
_LONGEST_NUMBER = 400  # digits
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


def from_strict_json(data: bytes) -> Any:
    """JSON of another program, as the standard has it; ValueError otherwise.

    UTF-8, no name twice in one object, every number finite and of at most 400 characters, nested as for `from_json`.
    """
    try:
        return _flat_enough(
            json.loads(
                data.decode(),
                object_pairs_hook=_without_repeats,
                parse_constant=_refuse_constant,
                parse_float=_finite,
                parse_int=_short_integer,
            )
        )
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:64]!r} occurs twice in one object")
    return table


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if len(digits) > _LONGEST_NUMBER or abs(value) == float("inf"):
        raise ValueError(f"the number {digits[:32]} is too large or too long")
    return value


def _short_integer(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)


def _flat_enough(value: T) -> T:
    """So that callers may walk through it recursively."""
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)


_BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key that needs no quotes


def dumps(table: Mapping[str, Any]) -> str:
    """TOML that `tomllib` reads back as `table`, without its None entries."""
    lines: list[str] = []
    _write(table, (), lines)
    return "\n".join(lines).strip() + "\n"


def _write(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str], *, one_of_many: bool = False) -> None:
    if path:
        name = ".".join(map(_key, path))
        lines.append(f"\n[[{name}]]" if one_of_many else f"\n[{name}]")
    for key, value in sorted(table.items(), key=lambda item: item[0] != "kind"):  # what a table is, first
        if value is not None and not isinstance(value, Mapping) and not _is_tables(value):
            lines.append(f"{_key(key)} = {_scalar(value)}")
    for key, value in table.items():
        if isinstance(value, Mapping):
            _write(value, (*path, key), lines)
        elif _is_tables(value):
            for inner in value:
                _write(inner, (*path, key), lines, one_of_many=True)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _scalar(name)


def _scalar(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case int() | float():
            return repr(value)
        case list() | tuple():
            return "[" + ", ".join(_scalar(item) for item in value) + "]"
        case _:
            raise TypeError(f"{type(value).__name__} has no TOML form")

"""Writing TOML (the standard library only reads it): tables, lists of them, scalars: all a spec holds."""

import json
import re
from collections.abc import Mapping
from typing import Any

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

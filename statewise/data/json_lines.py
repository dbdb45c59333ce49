"""JSON lines as texts: one field of each line, a line in memory at a time."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from statewise.data.compressed import opened, plain_name
from statewise.data.lines import Where
from statewise.data.table import Column, no_column
from statewise.specs import UserError, from_json

_ENDINGS = (".jsonl", ".ndjson")
_SETTING = "data.text_column"
_LONGEST = 1 << 24  # bytes of a line: parsed, hostile JSON takes 30 times as much


def is_json_lines(path: Path) -> bool:
    """Whether a path ends as that of JSON lines, compressed or not."""
    return plain_name(path).endswith(_ENDINGS)


def json_texts(path: Path, column: Column) -> Iterator[str]:
    """The texts of a field, with `\\n` line ends and without byte-order marks. Empty lines are no rows."""
    with opened(path) as file:
        number = 0
        while line := file.readline(_LONGEST):
            number += 1
            where = Where(str(path), number)
            if len(line) == _LONGEST:
                raise UserError(f"{where} has more than {_LONGEST:,} bytes", fix="split it, or give it as plain text")
            if line.strip():
                yield plain_text(_field(_object(line, where), str(column), where), where)


def plain_text(text: Any, where: Where) -> str:
    """One cell as a text, or refused: it must be there, and hold no zero character."""
    if text is None:
        raise UserError(f"{where}: the text is missing (null)", fix="fill it in, or leave the row out")
    if not isinstance(text, str):
        raise UserError(
            f"{where}: the text is of type {type(text).__name__}, expected a string", fix="name another column"
        )
    if "\0" in text:
        raise UserError(f"{where}: character {text.index(chr(0))} of the text is zero", fix="remove it")
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _object(line: bytes, where: Where) -> Mapping[str, Any]:
    try:
        row = from_json(line.decode("utf-8-sig" if where.line == 1 else "utf-8"))
        if b"\\u" in line:
            json.dumps(row, ensure_ascii=False).encode()  # half a character cannot be written
    except ValueError as error:
        raise UserError(f"{where} is not JSON: {error}", fix="correct or remove the line") from None
    if not isinstance(row, dict):
        raise UserError(f"{where} is of type {type(row).__name__}, expected an object", fix='as in {"text": "…"}')
    return row


def _field(row: Mapping[str, Any], name: str, where: Where) -> Any:
    """The field of that name; else `meta.text` is a field inside a field, and a number counts them from 0."""
    if name in row:
        return row[name]
    if name.isdecimal() and int(name) < len(row):
        return list(row.values())[int(name)]
    inside: Any = row
    for part in name.split("."):
        if not isinstance(inside, Mapping) or part not in inside:
            cells = {known: [cell] if isinstance(cell, str) else [] for known, cell in row.items()}
            raise no_column(str(where), {_SETTING: name}, cells)
        inside = inside[part]
    return inside

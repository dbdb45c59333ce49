"""Tables of text: CSV, TSV and JSON lines, as rows that know their columns and where they were read."""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, assert_never

from statewise.data.lines import UTF8, Examples, Line, Paths, Where, path_list, read_lines, suffix
from statewise.specs import UserError, from_json, setting

TableFormat = Literal["auto", "csv", "tsv", "quoted-tsv", "jsonl"]
Header = Literal["auto", "yes", "no"]
Column = str | int
Columns = Mapping[str, Column] | Sequence[Column]

FORMATS: dict[str, TableFormat] = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
# The csv module's own limit on a field is shorter than a long document.
_LARGEST_FIELD = 2**31 - 1
SAMPLE = 50  # rows that a guess is based on
_NO_GUESS = "COLUMN"  # placeholder for a name
_SEPARATORS = (";", "\t", "|", ",")
_FEW = 0.5  # largest share of distinct values in a column of labels
_TWICE = f"rename one, or name columns by number, with {setting('data.header', 'no')}"


class TableOptions(TypedDict, total=False):
    """Options of `table_rows` that its callers pass on."""

    format: TableFormat
    header: Header
    delimiter: str | None
    encoding: str
    keep_empty: bool


def column_settings(path: str, column: Column | tuple[Column, ...]) -> dict[str, Column]:
    """Columns by the settings that name them; several of one setting are told apart by a number in brackets."""
    return {f"{path}[{n}]": one for n, one in enumerate(column)} if isinstance(column, tuple) else {path: column}


def _as_settings(columns: Mapping[str, Column]) -> dict[str, Any]:
    """The settings of `column_settings`, those with a number as one list."""
    found: dict[str, Any] = {}
    for path, column in columns.items():
        base, bracket, _ = path.partition("[")
        found[base] = [*found.get(base, []), column] if bracket else column
    return found


class Row(NamedTuple):
    """The cells of a row. `names` are its columns, empty in a file without a header."""

    cells: tuple[Any, ...]
    names: tuple[str, ...]
    where: Where

    def cell(self, column: Column) -> Any:
        """The cell of a column, by its name or by its number from 0."""
        return self.cells[_place(column, self)]

    def text(self, column: Column | tuple[Column, ...], *, numbers: bool = False) -> str:
        """The cell as text; numbers and booleans as JSON writes them. Cells of several columns are joined by spaces.

        With `numbers`, a JSON list of them is joined too.
        """
        if isinstance(column, tuple):
            return " ".join(self.text(one, numbers=numbers) for one in column)
        cell = self.cell(column)
        if numbers and isinstance(cell, list):
            return " ".join(json.dumps(one) for one in cell)
        if isinstance(cell, str):
            return cell
        if isinstance(cell, bool | int | float):
            return json.dumps(cell)
        kind = "missing (null)" if cell is None else f"a {type(cell).__name__}"
        raise UserError(f"{self.where}: column {column!r} is {kind}, expected text", fix="give it a string or a number")


def read_table(paths: Paths, *, columns: Columns = (), **options: Unpack[TableOptions]) -> Examples[Row]:
    """The rows of all files: `table_rows`, with their counts."""
    counts: Counter[str] = Counter()
    return Examples(table_rows(paths, counts, columns=columns, **options), counts)


def table_rows(
    paths: Paths,
    counts: Counter[str],
    *,
    format: TableFormat = "auto",
    header: Header = "auto",
    columns: Columns = (),
    delimiter: str | None = None,
    encoding: str = UTF8,
    keep_empty: bool = False,
) -> Iterator[Row]:
    """The rows of all files, one at a time. Empty lines are counted, or kept as rows without cells (`keep_empty`).

    A row of another width than the first is refused.

    `format="auto"` goes by the file's ending. CSV is quoted as RFC 4180 has it; TSV is raw text in which
    a quote means nothing, unless the format is `quoted-tsv`. `header="auto"` expects one where a column of
    `columns` (those the caller will ask for) is a name, and none where all are numbers; `delimiter`
    replaces the comma or the tab. As a mapping, `columns` also says which setting names each column.
    """
    wanted = columns if isinstance(columns, Mapping) else {str(column): column for column in columns}
    for path in path_list(paths):
        kind = format_of(path) if format == "auto" else format
        lines = read_lines(path, encoding=encoding, takes=f"name the {kind} files in it one by one")
        match kind:
            case "jsonl":
                of_file = _objects(lines, counts, keep_empty=keep_empty)
            case "csv" | "tsv" | "quoted-tsv":
                separator = delimiter or ("," if kind == "csv" else "\t")
                cells = _split(lines, separator) if kind == "tsv" else _quoted(lines, separator)
                of_file = _rows(cells, counts, headed=_is_headed(header, wanted.values()), keep_empty=keep_empty)
            case "auto":
                raise AssertionError
            case _:
                assert_never(kind)
        checked = False
        for row in of_file:
            if row.cells and not checked:
                checked = True
                _check(wanted, row, of_file, named=kind == "jsonl")
            yield row


def format_of(path: Path) -> Literal["csv", "tsv", "quoted-tsv", "jsonl"]:
    format = FORMATS.get(suffix(path))
    if format is None or format == "auto":
        raise UserError(
            f"{str(path)!r}: the file name does not tell the format",
            fix=f"name it ({', '.join(sorted(set(FORMATS.values())))}): {setting('data.format', 'csv')}",
        )
    return format


def _is_headed(header: Header, columns: Iterable[Column]) -> bool:
    if header == "auto":
        return any(isinstance(column, str) and not column.isdecimal() for column in columns)
    return header == "yes"


def _split(lines: Iterator[Line], separator: str) -> Iterator[tuple[list[str], Where]]:
    for line in lines:
        yield (line.text.split(separator) if line.text.strip() else []), line.where


def _quoted(lines: Iterator[Line], separator: str) -> Iterator[tuple[list[str], Where]]:
    """A quoted cell may contain line ends, so a row may take several lines."""
    csv.field_size_limit(_LARGEST_FIELD)
    begin: list[Where] = []

    def fed() -> Iterator[str]:
        for line in lines:
            begin.append(line.where)
            yield line.text + "\n"

    try:
        reader = csv.reader(fed(), delimiter=separator, strict=True)
    except TypeError:
        raise UserError(f"delimiter {separator!r} is not one character") from None
    try:
        for cells in reader:
            yield ([] if all(not cell.strip() for cell in cells) and len(cells) <= 1 else cells), begin[0]
            begin.clear()
    except csv.Error as error:
        reason = "a quote is opened and never closed" if "end of data" in str(error) else str(error)
        raise UserError(
            f"{begin[0]}: {reason}",
            fix=f'inside a quoted cell write "" for a quote; for raw text with tabs: {setting("data.format", "tsv")}',
        ) from None


def _rows(
    cells: Iterator[tuple[list[str], Where]], counts: Counter[str], *, headed: bool, keep_empty: bool
) -> Iterator[Row]:
    names: tuple[str, ...] | None = None
    first: tuple[int, str] | None = None
    for row, where in cells:
        if not row:
            counts["empty lines"] += 1
            if keep_empty and (first is not None or not headed):  # an empty line above the header is not a row
                yield Row((), names or (), where)
            continue
        if first is None:
            first = len(row), f"line {where.line}"
            if headed:
                names = _names(row, where)
                continue
        if len(row) != first[0]:
            raise UserError(
                f"{where}: {len(row)} columns, expected {first[0]} as in {first[1]}",
                fix="correct the row; a cell that holds the separator is quoted (csv, quoted-tsv) or changed (tsv)",
            )
        yield Row(tuple(row), names or (), where)


def _names(row: list[str], where: Where) -> tuple[str, ...]:
    names = tuple(name.strip() for name in row)
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise UserError(f"{where}: the header names {twice!r} twice", fix=_TWICE)
    return names


def _objects(lines: Iterator[Line], counts: Counter[str], *, keep_empty: bool) -> Iterator[Row]:
    for line in lines:
        if not line.text.strip():
            counts["empty lines"] += 1
            if keep_empty:
                yield Row((), (), line.where)
            continue
        try:
            row = from_json(line.text)
        except json.JSONDecodeError as error:
            raise UserError(
                f"{line.where}: not JSON at character {error.pos + 1}: {error.msg}",
                fix="JSON lines hold one whole object on every line",
            ) from None
        except (RecursionError, ValueError) as error:
            raise UserError(f"{line.where}: not JSON that can be read: {error}") from None
        if not isinstance(row, dict):
            raise UserError(
                f"{line.where}: a JSON {type(row).__name__}, expected an object with named values",
                fix='write each line as {"text": "…", "label": "…"}',
            )
        if "\\u" in line.text:
            _refuse_half_characters(row, line.where)
        yield Row(tuple(row.values()), tuple(row), line.where)


def _refuse_half_characters(row: dict[str, Any], where: Where) -> None:
    """Refuse unpaired surrogates, which JSON escapes can express but UTF-8 cannot encode."""
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise UserError(f"{where}: {half} is half a character", fix="correct or remove it") from None


def _check(wanted: Mapping[str, Column], first: Row, rest: Iterator[Row], *, named: bool) -> None:
    """Refuse a table without the wanted columns, and guess which of its own are meant.

    `named`: every row names its columns, so that no header can be missing.
    """
    names = {path: str(column) for path, column in wanted.items() if isinstance(column, str) and column.strip()}
    if not first.names or all(name in first.names or name.isdecimal() for name in names.values()):
        for path, column in wanted.items():
            _place(column, first, path)
        return
    sample = [first]
    with suppress(UserError):  # an error in a later row is not the first problem
        sample += islice(rest, SAMPLE)
    cells = {name: [str(row.cells[at]) for row in sample if at < len(row.cells)] for at, name in enumerate(first.names)}
    raise no_column(first.where.path, names, cells, headed=named or bool(set(names.values()) & set(first.names)))


def _place(column: Column, row: Row, path: str = "") -> int:
    if isinstance(column, str) and column in row.names:
        return row.names.index(column)
    if isinstance(column, int) or column.isdecimal():
        if 0 <= int(column) < len(row.cells):
            return int(column)
        raise UserError(
            f"{row.where}: there is no column {column}: the row has {len(row.cells)}, {_shown(row)}",
            fix=f"columns are numbered from 0 to {len(row.cells) - 1}, or named, with a header: "
            f"{setting({path: 'COLUMN', 'data.header': 'yes'}) if '.' in path else setting('data.header', 'yes')}",
        )
    if not row.names:
        raise UserError(
            f"{row.where}: column {column!r} has a name, but the file is read without a header",
            fix=f"use its number, 0 to {len(row.cells) - 1}, or say that there is one: {setting('data.header', 'yes')}",
        )
    cells = {name: [str(cell)] for name, cell in zip(row.names, row.cells)}
    raise no_column(str(row.where), {path or "data.text": column}, cells)


def _shown(row: Row) -> str:
    cells = list(map(str, row.names or row.cells))
    shown = [repr(cell if len(cell) <= 20 else f"{cell[:19]}…") for cell in cells[:6]]
    return ", ".join(shown if len(cells) <= 6 else [*shown, "…"])


def no_column(
    where: str, wanted: Mapping[str, str], columns: Mapping[str, Sequence[str]], *, headed: bool = True
) -> UserError:
    """The error for columns (by setting, `wanted`) that a file lacks. `columns` are the file's, with some cells.

    Where the first line may be data (not `headed`), it also says how columns are numbered.

    >>> print(no_column("x.csv", {"data.text": "text"}, {"id": ["1", "2"], "review": ["a good film", "dull"]}))
    there is no column 'text' in x.csv; it has: id, review
    if the text is in 'review': settings={"data.text": "review"}
    """
    missing = {path: name for path, name in wanted.items() if name not in columns}
    taken = {name for name in wanted.values() if name in columns}
    guesses: dict[str, str] = {}
    for path, name in missing.items():
        left = {column: cells for column, cells in columns.items() if column not in taken}
        guess = _guess(path.rpartition(".")[2], name, left)
        guesses[path] = guess or _NO_GUESS
        taken |= {guess} if guess else set()
    named = " and ".join(map(repr, missing.values()))
    verb = "is no column" if len(missing) == 1 else "are no columns"
    known = [f"the {_role(path)} is in {guess!r}" for path, guess in guesses.items() if guess != _NO_GUESS]
    several = {path: guesses.get(path, name) for path, name in wanted.items() if path in guesses or "[" in path}
    fix = f"if {' and '.join(known)}: " if known else "name the column: "
    fix += setting(_as_settings(several))
    if not headed:
        numbers = {path: number for number, path in enumerate(wanted)}
        fix += f"; if the file has no header, give columns by number: {setting(_as_settings(numbers))}"
    only = next(iter(columns), "")
    if len(columns) == 1 and (between := next((mark for mark in _SEPARATORS if mark in only), None)):
        fix = f"if {between!r} stands between columns: {setting('data.delimiter', between)}"
    return UserError(f"there {verb} {named} in {where}; it has: {_listed(columns)}", fix=fix)


def _listed(names: Iterable[str]) -> str:
    shown = [name if len(name) <= 80 else f"{name[:79]}…" for name in islice(names, 41)]
    return ", ".join(shown if len(shown) <= 40 else [*shown[:40], "…"])


def _role(path: str) -> str:
    return path.rpartition(".")[2].partition("[")[0].removesuffix("_column").removesuffix("s")


def _guess(role: str, name: str, columns: Mapping[str, Sequence[str]]) -> str | None:
    """The column with a similar name; else for a text the longest cells, for a label the fewest distinct values."""
    spelled = {column.lower(): column for column in columns}
    if close := get_close_matches(name.lower(), spelled, n=1, cutoff=0.6):
        return spelled[close[0]]
    words = {column: cells for column, cells in columns.items() if cells and not all(map(_is_number, cells))}
    match role:
        case "text" | "text_column" | "source_column" | "target_column":
            longest = {column: sum(map(len, cells)) / len(cells) for column, cells in words.items()}
            return max(longest, key=lambda column: longest[column], default=None)
        case "label" | "id":
            few = {column: len(set(cells)) / len(cells) for column, cells in columns.items() if len(cells) > 1}
            best = min(few, key=lambda column: few[column], default=None)
            if best is not None and few[best] <= _FEW:
                return best
            return next(iter(columns)) if role == "label" and len(columns) == 1 else None
        case _:
            return None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True

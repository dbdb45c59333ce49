"""Pairs of source and target texts: two aligned files, two columns of a table, or lines of SCAN."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Literal, NamedTuple, TypedDict, Unpack

from statewise.data.hub import read_rows
from statewise.data.labelled import Empty
from statewise.data.lines import UTF8, Examples, Line, Paths, Where, path_list, read_lines, refuse_empty
from statewise.data.table import Column, Header, Row, TableOptions, column_settings
from statewise.specs import UserError, setting

Columns = Column | tuple[Column, ...]
PairFormat = Literal["auto", "csv", "tsv", "quoted-tsv", "jsonl", "scan"]

_SCAN = re.compile(r"IN:(.*?)\bOUT:(.*)")


class Pair(NamedTuple):
    source: str
    target: str
    where: Where


class PairOptions(TypedDict, total=False):
    """Options of `pair_rows` that its callers pass on."""

    format: PairFormat
    columns: tuple[Columns, Column]
    numbers: bool
    header: Header
    delimiter: str | None
    empty: Empty
    encoding: str


def read_pairs(source: Paths, target: Paths | None = None, **options: Unpack[PairOptions]) -> Examples[Pair]:
    """Pairs of texts: `pair_rows`, with their counts."""
    counts: Counter[str] = Counter()
    return Examples(pair_rows(source, target, counts, **options), counts)


def pair_rows(
    source: Paths,
    target: Paths | None,
    counts: Counter[str],
    *,
    format: PairFormat = "auto",
    columns: tuple[Columns, Column] = (0, 1),
    numbers: bool = False,
    header: Header = "auto",
    delimiter: str | None = None,
    empty: Empty = "refuse",
    encoding: str = UTF8,
) -> Iterator[Pair]:
    """With `target`, line n of the source files belongs to line n of the target files. One at a time.

    Without, each row of a table has both in two `columns`, or each line is `IN: … OUT: …` (`scan`). With `numbers`, a
    JSON list of them is one side, and a source may have several columns.
    A line that is empty on both sides is counted and skipped; `empty` says what to do with those empty on one.
    """
    if target is not None:
        pairs = _aligned(source, target, encoding)
    elif format == "scan":
        pairs = _scan(source, counts, encoding)
    else:
        named = {**column_settings("data.source_column", columns[0]), "data.target_column": columns[1]}
        table: TableOptions = {"format": format, "header": header, "delimiter": delimiter, "encoding": encoding}
        rows = (row for path in path_list(source) for row in read_rows(path, counts, columns=named, **table))
        pairs = pair_columns(rows, columns=columns, numbers=numbers)
    kept = 0
    for pair in pairs:
        if _is_two_sided(pair, counts, empty):
            kept += 1
            yield pair
    refuse_empty(kept, source, "pair")


def pair_columns(rows: Iterable[Row], *, columns: tuple[Columns, Column], numbers: bool = False) -> Iterator[Pair]:
    """Pairs from two columns of a table; a source of numbers may have several."""
    source, target = columns
    return (Pair(row.text(source, numbers=numbers), row.text(target, numbers=numbers), row.where) for row in rows)


def _aligned(source: Paths, target: Paths, encoding: str) -> Iterator[Pair]:
    sources, targets = _all_lines(source, encoding), _all_lines(target, encoding)
    for both, (source_line, target_line) in enumerate(zip_longest(sources, targets)):
        if source_line is None or target_line is None:
            longer, rest = (targets, target_line) if source_line is None else (sources, source_line)
            more = both + 1 + sum(1 for _ in longer)
            counts = (both, more) if source_line is None else (more, both)
            raise UserError(
                f"{rest.where} has no counterpart: {_names(source)} has {counts[0]} lines, {_names(target)} has "
                f"{counts[1]}",
                fix="line n of one belongs to line n of the other; an empty line must stay where it is",
            )
        yield Pair(source_line.text, target_line.text, source_line.where)


def _all_lines(paths: Paths, encoding: str) -> Iterator[Line]:
    return (line for path in path_list(paths) for line in read_lines(path, encoding=encoding))


def _names(paths: Paths) -> str:
    return repr(", ".join(map(str, path_list(paths))))


def _scan(paths: Paths, counts: Counter[str], encoding: str) -> Iterator[Pair]:
    for line in _all_lines(paths, encoding):
        if not line.text.strip():
            counts["empty lines"] += 1
            continue
        yield _scanned(line)


def _scanned(line: Line) -> Pair:
    sides = _SCAN.fullmatch(line.text.strip())
    if not sides:
        raise UserError(f"{line.where}: expected 'IN: … OUT: …', found {line.text[:60]!r}")
    return Pair(sides[1].strip(), sides[2].strip(), line.where)


def _is_two_sided(pair: Pair, counts: Counter[str], empty: Empty) -> bool:
    """Whether a pair is kept, though a side of it may be empty."""
    empty_sides = [side for side, text in (("source", pair.source), ("target", pair.target)) if not text.strip()]
    if len(empty_sides) == 2:
        counts["empty lines"] += 1
        return False
    if not empty_sides or empty == "keep":
        return True
    if empty == "refuse":
        raise UserError(
            f"{pair.where}: the {empty_sides[0]} is empty, but not the other side",
            fix=f"correct or remove it, or skip such pairs: {setting('data.empty', 'skip')} (or keep)",
        )
    counts["empty on one side"] += 1
    return False

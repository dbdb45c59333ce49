"""Pairs of source and target texts: two aligned files, two columns of a table, or lines of SCAN."""

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from statewise.data.hub import read_rows
from statewise.data.labelled import Empty
from statewise.data.lines import UTF8, Examples, Line, Paths, Where, path_list, read_lines, refuse_empty
from statewise.data.table import Column, Header, Row, column_settings
from statewise.specs import UserError, setting

Columns = Column | tuple[Column, ...]
PairFormat = Literal["auto", "csv", "tsv", "quoted-tsv", "jsonl", "scan"]

_SCAN = re.compile(r"IN:(.*?)\bOUT:(.*)")


class Pair(NamedTuple):
    source: str
    target: str
    where: Where


def read_pairs(
    source: Paths,
    target: Paths | None = None,
    *,
    format: PairFormat = "auto",
    columns: tuple[Columns, Column] = (0, 1),
    numbers: bool = False,
    header: Header = "auto",
    delimiter: str | None = None,
    empty: Empty = "refuse",
    encoding: str = UTF8,
) -> Examples[Pair]:
    """With `target`, line n of the source files belongs to line n of the target files.

    Without, each row of a table has both in two `columns`, or each line is `IN: … OUT: …` (`scan`). With `numbers`, a
    JSON list of them is one side, and a source may have several columns.
    A line that is empty on both sides is counted and skipped; `empty` says what to do with those empty on one.
    """
    kept: Examples[Pair] = Examples()
    if target is not None:
        pairs = _aligned(source, target, encoding)
    elif format == "scan":
        pairs = _scan(source, kept, encoding)
    else:
        rows: Examples[Row] = Examples()
        for path in path_list(source):
            named = {**column_settings("data.source_column", columns[0]), "data.target_column": columns[1]}
            of_file = read_rows(
                path, format=format, header=header, columns=named, delimiter=delimiter, encoding=encoding
            )
            rows += of_file
            kept.counts += of_file.counts
        pairs = iter(pair_columns(rows, columns=columns, numbers=numbers))
    kept += _two_sided(pairs, kept, empty)
    refuse_empty(kept, source, "pair")
    return kept


def pair_columns(rows: Examples[Row], *, columns: tuple[Columns, Column], numbers: bool = False) -> Examples[Pair]:
    """Pairs from two columns of a table; a source of numbers may have several."""
    source, target = columns
    pairs = (Pair(row.text(source, numbers=numbers), row.text(target, numbers=numbers), row.where) for row in rows)
    return Examples(pairs, rows.counts)


def _aligned(source: Paths, target: Paths, encoding: str) -> Iterator[Pair]:
    sources, targets = _all_lines(source, encoding), _all_lines(target, encoding)
    if len(sources) != len(targets):
        longer = sources if len(sources) > len(targets) else targets
        raise UserError(
            f"{longer[min(len(sources), len(targets))].where} has no counterpart: "
            f"{_names(source)} has {len(sources)} lines, {_names(target)} has {len(targets)}",
            fix="line n of one belongs to line n of the other; an empty line must stay where it is",
        )
    return (
        Pair(source_line.text, target_line.text, source_line.where)
        for source_line, target_line in zip(sources, targets)
    )


def _all_lines(paths: Paths, encoding: str) -> list[Line]:
    return [line for path in path_list(paths) for line in read_lines(path, encoding=encoding)]


def _names(paths: Paths) -> str:
    return repr(", ".join(map(str, path_list(paths))))


def _scan(paths: Paths, pairs: Examples[Pair], encoding: str) -> Iterator[Pair]:
    for line in _all_lines(paths, encoding):
        if not line.text.strip():
            pairs.counts["empty lines"] += 1
            continue
        yield _scanned(line)


def _scanned(line: Line) -> Pair:
    sides = _SCAN.fullmatch(line.text.strip())
    if not sides:
        raise UserError(f"{line.where}: expected 'IN: … OUT: …', found {line.text[:60]!r}")
    return Pair(sides[1].strip(), sides[2].strip(), line.where)


def _two_sided(pairs: Iterable[Pair], kept: Examples[Pair], empty: Empty) -> Iterator[Pair]:
    for pair in pairs:
        empty_sides = [side for side, text in (("source", pair.source), ("target", pair.target)) if not text.strip()]
        if len(empty_sides) == 2:
            kept.counts["empty lines"] += 1
        elif not empty_sides or empty == "keep":
            yield pair
        elif empty == "skip":
            kept.counts["empty on one side"] += 1
        else:
            raise UserError(
                f"{pair.where}: the {empty_sides[0]} is empty, but not the other side",
                fix=f"correct or remove it, or skip such pairs: {setting('data.empty', 'skip')} (or keep)",
            )

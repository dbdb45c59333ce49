"""Sentences with a tag on every word: CoNLL-U, columns with an empty line between sentences, JSON lines, datasets.

Reading and writing walk through a file in the same order, so predicted tags go back to the lines of their words.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, assert_never

from statewise.data.hub import hub_name, read_rows
from statewise.data.lines import UTF8, Examples, Line, Paths, Where, path_list, read_lines, refuse_empty, suffix
from statewise.data.table import FORMATS, Row
from statewise.specs import UserError, nearest, setting

TaggedFormat = Literal["auto", "conllu", "columns"]
Scheme = Literal["as-is", "iob2"]

WORDS, TAGS = "tokens", "tags"  # default column names
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_UNSPECIFIED = "_"
_DOCUMENT = "-DOCSTART-"
_RANGE_ID = re.compile(r"[1-9][0-9]*-[1-9][0-9]*")
_EMPTY_ID = re.compile(r"[0-9]+\.[1-9][0-9]*")
_SPAN_TAG = re.compile(r"O|[BIESLU]-.+")
# IOBES and BILOU also mark the end of a span (E, L) and spans of one word (S, U).
_IN_IOB2 = {"E": "I", "L": "I", "S": "B", "U": "B"}
# Column separators. Words may contain other white space, such as a no-break space in a number.
_BLANKS = " \t"
_BETWEEN = re.compile(f"[{_BLANKS}]+")


class RowSentence(NamedTuple):
    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: Where


class Tagged(NamedTuple):
    """`where` is the line of the first word. Without tags (a file to predict on), `tags` is empty."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: Where


class Layout(NamedTuple):
    """The columns of words and tags: names for CoNLL-U, else numbers, from the end if negative."""

    format: TaggedFormat = "auto"
    word: str | int | None = None
    tag: str | int | None = None
    comment: str | None = None
    encoding: str = UTF8


DEFAULT = Layout()


class _Step(NamedTuple):
    """A line of the file: a word if it has `cells`, a skipped line if it has `skip`, else the end of a sentence."""

    line: Line
    cells: list[str]
    skip: str = ""


def read_tagged(
    paths: Paths, *, layout: Layout = DEFAULT, scheme: Scheme = "as-is", tags: bool = True
) -> Examples[Tagged]:
    """The sentences of all files: `tagged_rows`, with their counts."""
    counts: Counter[str] = Counter()
    return Examples(tagged_rows(paths, counts, layout=layout, scheme=scheme, tags=tags), counts)


def tagged_rows(
    paths: Paths, counts: Counter[str], *, layout: Layout = DEFAULT, scheme: Scheme = "as-is", tags: bool = True
) -> Iterator[Tagged]:
    """The sentences of all files, one at a time. Default columns: `form` and `upos`, or the first and the last.

    CoNLL-U's comments, multiword ranges and empty nodes, and `-DOCSTART-` lines, are counted. `scheme="iob2"`
    makes spans begin with `B-` wherever they begin and go on with `I-`, from IOB1, IOBES or BILOU; `tags=False`
    reads words alone.
    """
    kept = 0
    for path in path_list(paths):
        read = _row_by_row if _in_rows(path, layout) else _line_by_line
        for sentence in read(path, layout, counts, scheme, tags=tags):
            kept += 1
            yield sentence
    if tags:
        refuse_empty(kept, paths, "tagged sentence")


def _in_rows(path: Path, layout: Layout) -> bool:
    """Whether each sentence is a row with lists of words and tags."""
    return hub_name(path) is not None or (layout.format == "auto" and FORMATS.get(suffix(path)) == "jsonl")


def _rows(path: Path, layout: Layout, counts: Counter[str], *, tags: bool) -> Iterator[RowSentence]:
    return row_sentences(path, counts, word=layout.word, tag=layout.tag, tags=tags, encoding=layout.encoding)


def _row_by_row(path: Path, layout: Layout, counts: Counter[str], scheme: Scheme, *, tags: bool) -> Iterator[Tagged]:
    for words, own_tags, where in _rows(path, layout, counts, tags=tags):
        if tags and not words:
            counts["empty sentences"] += 1
            continue
        spans = tuple(_iob2([where] * len(words), own_tags)) if tags and scheme == "iob2" else own_tags
        yield Tagged(words, spans, where)


def _line_by_line(path: Path, layout: Layout, counts: Counter[str], scheme: Scheme, *, tags: bool) -> Iterator[Tagged]:
    steps = _walk(path, layout)
    format, word, tag = _columns(path, layout)
    for sentence in _sentences(steps, counts):
        words = tuple(_cell(step, word, "word") for step in sentence)
        own_tags = tuple(_tag(step, word, tag, format) for step in sentence) if tags else ()
        if tags and scheme == "iob2":
            own_tags = tuple(_iob2([step.line.where for step in sentence], own_tags))
        yield Tagged(words, own_tags, sentence[0].line.where)


def with_tags(path: str | Path, tags: Sequence[Sequence[str]], *, layout: Layout = DEFAULT) -> Iterator[str]:
    """The lines of a file with these tags in place of its own; everything else is unchanged.

    A file of words alone, or without the column of tags, gets a column more. Rows of JSON lines or of a dataset of the
    hub become lines.
    """
    if _in_rows(Path(path), layout):
        yield from tagged_lines([sentence.words for sentence in _rows(Path(path), layout, Counter(), tags=False)], tags)
        return
    format, word, tag = _columns(Path(path), layout)
    rows = iter(tags)
    left: list[str] = []
    inside = False
    for step in _walk(Path(path), layout):
        if not step.cells:
            inside = inside and bool(step.skip)
            yield step.line.text
            continue
        if not inside:
            assert not left, f"{step.line.where}: more tags than words in the sentence before"
            left, inside = list(next(rows))[::-1], True
        tab = "\t" if format == "conllu" or "\t" in step.line.text else " "
        cells = list(step.cells)
        new = left.pop()
        if not -len(cells) <= tag < len(cells) or tag % len(cells) == word % len(cells):
            cells.append(new)
        else:
            cells[tag] = new
        yield tab.join(cells)
    assert not left
    assert next(rows, None) is None, f"more tags than sentences in {str(path)!r}"


def _columns(path: Path, layout: Layout) -> tuple[Literal["conllu", "columns"], int, int]:
    match format_of(path, layout):
        case "conllu":
            return "conllu", _named(layout.word, "form", "data.word"), _named(layout.tag, "upos", "data.tag")
        case "columns":
            word = 0 if layout.word is None else layout.word
            tag = -1 if layout.tag is None else layout.tag
            for column in (word, tag):
                if not isinstance(column, int):
                    raise UserError(
                        f"column {column!r} has a name, but columns of {str(path)!r} have none",
                        fix="number them from 0 (or -1 for the last), or name the format: "
                        + setting("data.format", "conllu"),
                    )
            return "columns", int(word), int(tag)
        case other:
            assert_never(other)


def format_of(path: Path, layout: Layout) -> Literal["conllu", "columns"]:
    """The layout's format, else by the file name."""
    if layout.format == "auto":
        return "conllu" if suffix(path) in (".conllu", ".conllup") else "columns"
    return layout.format


def _named(column: str | int | None, default: str, path: str) -> int:
    column = default if column is None else column
    if isinstance(column, str):
        if column.lower() not in CONLLU:
            raise UserError(
                f"CoNLL-U has no column {column!r}", fix=f"{nearest(column, CONLLU)}: {setting(path, default)}"
            )
        return CONLLU.index(column.lower())
    if not 0 <= column < len(CONLLU):
        raise UserError(
            f"CoNLL-U has no column {column}",
            fix=f"0 to {len(CONLLU) - 1}, or {', '.join(CONLLU)}: {setting(path, default)}",
        )
    return column


def _walk(path: Path, layout: Layout) -> Iterator[_Step]:
    match format_of(path, layout):
        case "conllu":
            return _walk_conllu(path, layout.encoding)
        case "columns":
            return _walk_columns(path, layout)
        case other:
            assert_never(other)


def _walk_conllu(path: Path, encoding: str) -> Iterator[_Step]:
    expected = 1
    for line in read_lines(path, encoding=encoding):
        if not line.text.strip():
            expected = 1
            yield _Step(line, [])
            continue
        if line.text.startswith("#"):
            yield _Step(line, [], "comments")
            continue
        cells = line.text.split("\t")
        if len(cells) != len(CONLLU):
            raise UserError(
                f"{line.where}: {len(cells)} columns, CoNLL-U has {len(CONLLU)} with a tab between",
                fix=f"correct the line; for a file of words and tags alone: {setting('data.format', 'columns')}",
            )
        if _RANGE_ID.fullmatch(cells[0]):
            yield _Step(line, [], "multiword ranges")
        elif _EMPTY_ID.fullmatch(cells[0]):
            yield _Step(line, [], "empty nodes")
        elif cells[0] != str(expected):
            raise UserError(
                f"{line.where}: word number {cells[0]!r}, expected {expected}",
                fix="words of a sentence are numbered from 1, and an empty line stands between sentences",
            )
        else:
            expected += 1
            yield _Step(line, cells)


def _walk_columns(path: Path, layout: Layout) -> Iterator[_Step]:
    width: tuple[int, int] | None = None
    for line in read_lines(path, encoding=layout.encoding):
        if not line.text.strip():
            yield _Step(line, [])
            continue
        if layout.comment and line.text.startswith(layout.comment):
            yield _Step(line, [], "comments")
            continue
        cells = line.text.split("\t") if "\t" in line.text else _BETWEEN.split(line.text.strip(_BLANKS))
        if cells[0] == _DOCUMENT:
            yield _Step(line, [], "document starts")
            continue
        width = width or (len(cells), line.where.line)
        if len(cells) != width[0]:
            raise UserError(
                f"{line.where}: {len(cells)} columns, expected {width[0]} as in line {width[1]}",
                fix=f"correct the line; if comments begin like it: {setting('data.comment', '#')}",
            )
        yield _Step(line, cells)


def _sentences(steps: Iterator[_Step], counts: Counter[str]) -> Iterator[list[_Step]]:
    sentence: list[_Step] = []
    for step in steps:
        if step.cells:
            sentence.append(step)
        elif step.skip:
            counts[step.skip] += 1
        elif sentence:
            yield sentence
            sentence = []
        else:
            counts["empty lines"] += 1
    if sentence:
        yield sentence


def _cell(step: _Step, column: int, what: str) -> str:
    if not -len(step.cells) <= column < len(step.cells):
        raise UserError(
            f"{step.line.where}: there is no column {column} for the {what}: the line has {len(step.cells)}",
            fix=f"columns are numbered from 0 to {len(step.cells) - 1}: {setting(f'data.{what}', 0)}",
        )
    cell = step.cells[column].strip(_BLANKS)
    if not cell:
        raise UserError(f"{step.line.where}: the {what} in column {column} is empty", fix="correct the line")
    return cell


def _tag(step: _Step, word: int, column: int, format: Literal["conllu", "columns"]) -> str:
    tag = _cell(step, column, "tag")
    if column % len(step.cells) == word % len(step.cells):
        raise UserError(
            f"{step.line.where}: word and tag are both read from column {word}",
            fix=f"every line needs a word and a tag; or name another column: {setting('data.tag', 'COLUMN')}",
        )
    if format == "conllu" and tag == _UNSPECIFIED:
        raise UserError(
            f"{step.line.where}: {CONLLU[column]} is unspecified (_)",
            fix=f"fill it in, or name another column: {setting('data.tag', 'COLUMN')}",
        )
    return tag


def _iob2(where: Sequence[Where], tags: Sequence[str]) -> Iterator[str]:
    before = "O"
    for place, tag in zip(where, tags):
        if not _SPAN_TAG.fullmatch(tag):
            raise UserError(
                f"{place}: tag {tag!r} is none of O, B-… and I-… (nor E-, S-, L-, U-…)",
                fix="leave scheme as it is for tags that do not mark spans",
            )
        kept = _IN_IOB2.get(tag[0], tag[0]) + tag[1:]
        begins = kept.startswith("I-") and before[2:] != kept[2:]
        yield f"B-{kept[2:]}" if begins else kept
        before = "O" if tag[0] in "ESLU" else tag


def row_sentences(
    path: Path,
    counts: Counter[str],
    *,
    word: str | int | None,
    tag: str | int | None,
    tags: bool = True,
    encoding: str = UTF8,
) -> Iterator[RowSentence]:
    """Sentences in order, empty ones included. `tags=False` reads words only."""
    word, tag = WORDS if word is None else word, TAGS if tag is None else tag
    columns = {"data.word": word} | ({"data.tag": tag} if tags else {})
    for row in read_rows(path, counts, columns=columns, encoding=encoding):
        words, given = _listed(row, word), _listed(row, tag) if tags else ()
        if tags and len(words) != len(given):
            raise UserError(
                f"{row.where}: {len(words)} words in {word!r}, but {len(given)} tags in {tag!r}",
                fix=f"name the columns that belong together: {setting({'data.word': 'COLUMN', 'data.tag': 'COLUMN'})}",
            )
        if "" in words or "" in given:
            raise UserError(f"{row.where}: a word or a tag is empty", fix="correct the row, or leave it out")
        yield RowSentence(words, given, row.where)


def tagged_lines(words: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> Iterator[str]:
    """A word and its tag per line, an empty line after each sentence."""
    for sentence, sentence_tags in zip(words, tags, strict=True):
        yield from (f"{word}\t{tag}" for word, tag in zip(sentence, sentence_tags, strict=True))
        yield ""


def _listed(row: Row, column: str | int) -> tuple[str, ...]:
    cell = row.cell(column)
    if not isinstance(cell, list) or not all(isinstance(item, str | int) for item in cell):
        raise UserError(
            f"{row.where}: column {column!r} is no list of words or tags",
            fix=f"name other columns: {setting({'data.word': 'COLUMN', 'data.tag': 'COLUMN'})}",
        )
    return tuple(str(item).strip() for item in cell)

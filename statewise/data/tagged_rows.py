"""Tagged sentences as rows of JSON lines or of a Hugging Face dataset: the words and the tags are two lists."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from statewise.data.anywhere import read_rows
from statewise.data.lines import UTF8, Where
from statewise.data.table import Row
from statewise.specs import UserError, setting

WORDS, TAGS = "tokens", "tags"  # the usual names


class RowSentence(NamedTuple):
    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: Where


def row_sentences(
    path: Path, *, word: str | int | None, tag: str | int | None, tags: bool = True, encoding: str = UTF8
) -> Iterator[RowSentence]:
    """In order, rows without a word too. `tags=False` asks for no tags."""
    word, tag = WORDS if word is None else word, TAGS if tag is None else tag
    columns = {"data.word": word} | ({"data.tag": tag} if tags else {})
    for row in read_rows(path, columns=columns, encoding=encoding):
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
    """A word and its tag on each line, an empty line after each sentence: what a dataset would be as a file."""
    for some, given in zip(words, tags, strict=True):
        yield from (f"{word}\t{tag}" for word, tag in zip(some, given, strict=True))
        yield ""


def _listed(row: Row, column: str | int) -> tuple[str, ...]:
    cell = row.cell(column)
    if not isinstance(cell, list) or not all(isinstance(one, str | int) for one in cell):
        raise UserError(
            f"{row.where}: column {column!r} is no list of words or tags",
            fix=f"name other columns: {setting({'data.word': 'COLUMN', 'data.tag': 'COLUMN'})}",
        )
    return tuple(str(one).strip() for one in cell)

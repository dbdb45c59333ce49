"""Tagged sentences of a Hugging Face dataset: a row is a sentence, its words and tags are lists side by side."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from statewise.data.anywhere import HubName
from statewise.data.hub import read_hub
from statewise.data.lines import Where
from statewise.data.table import Row
from statewise.specs import UserError, setting

_WORDS, _TAGS = "tokens", "tags"  # the usual names


class HubSentence(NamedTuple):
    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: Where


def hub_sentences(
    hub: HubName, *, word: str | int | None, tag: str | int | None, tags: bool = True
) -> Iterator[HubSentence]:
    """In order, rows without a word too. `tags=False` asks for no tags."""
    word, tag = _WORDS if word is None else word, _TAGS if tag is None else tag
    for row in read_hub(hub.name, (word, tag) if tags else (word,), config=hub.config, split=hub.split):
        words, given = _listed(row, word), _listed(row, tag) if tags else ()
        if tags and len(words) != len(given):
            raise UserError(
                f"{row.where}: {len(words)} words in {word!r}, but {len(given)} tags in {tag!r}",
                fix=f"name the columns that belong together: {setting({'data.word': 'COLUMN', 'data.tag': 'COLUMN'})}",
            )
        if "" in words or "" in given:
            raise UserError(f"{row.where}: a word or a tag is empty", fix="correct the row, or leave it out")
        yield HubSentence(words, given, row.where)


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

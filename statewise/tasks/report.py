"""What an evaluation found, in a shape that every task shares: a model between its trivial baselines."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

_FITS = 8  # columns on a narrow terminal, and letters in each
_MANY = 0.2  # a share of unknown tokens that no text in the language of the training data should have


class More(NamedTuple):
    """A further table, beside the figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Report(NamedTuple):
    """A table: what predicts, and its figures under `columns`. `own` is the row of the model itself."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    own: int
    note: str  # one line below the table
    more: tuple[More, ...] = ()


def confusion_table(labels: Sequence[str], confusion: Sequence[Sequence[int]]) -> tuple[More, ...]:
    """What was taken for what, where that fits on a screen."""
    if not 2 <= len(labels) <= _FITS:
        return ()
    names = [label if len(label) <= _FITS else f"{label[: _FITS - 1]}…" for label in labels]
    rows = tuple((name, *(f"{count:,}" for count in row)) for name, row in zip(names, confusion, strict=True))
    return (More("taken for", ("true", *names), rows),)


class Evaluation(Protocol):
    """A NamedTuple of figures that can show itself."""

    def _asdict(self) -> dict[str, Any]: ...

    def report(self, name: str) -> Report:
        """`name` is what the model is called."""


def unknown_note(share: float | None, *, of: str = "tokens") -> str:
    """What a reader should know of words that the vocabulary lacks; where they are many, what to do."""
    if not share:
        return ""
    advice = "; byte or bpe as data.tokenizer reads any text" if share > _MANY else ""
    return f" · {share:.1%} of the {of} unknown{advice}"

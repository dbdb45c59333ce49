"""What an evaluation measured, in a shape that every task shares: a model between its trivial baselines."""

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple, Protocol, TypeVar

from statewise.figures import html
from statewise.figures.table import Table

_FITS = 8  # columns on a narrow terminal, and letters in each
_MANY = 0.2  # a share of unknown tokens that no text in the language of the training data should have


class More(NamedTuple):
    """A further table, beside the metrics."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def table(self) -> Table:
        return Table.of_texts(self.columns, self.rows)


class Report(NamedTuple):
    """A table: a row for each predictor, its metrics under `columns`. `own` is the row of the model itself."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    own: int
    note: str  # one line below the table
    more: tuple[More, ...] = ()

    def table(self) -> Table:
        return Table.of_texts(("predictor", *self.columns), self.rows)._replace(best=self.own)

    def as_text(self) -> str:
        tables = (f"\n{more.title}\n{more.table().as_text()}" for more in self.more)
        return "\n".join([self.table().as_text(), self.note, *tables])

    def as_html(self) -> str:
        tables = (f"<h4>{escape(more.title)}</h4>{html.table(more.table())}" for more in self.more)
        return "".join([html.table(self.table()), f"<p>{escape(self.note)}</p>", *tables])


def confusion_table(labels: Sequence[str], confusion: Sequence[Sequence[int]]) -> tuple[More, ...]:
    """What was taken for what, where that fits on a screen."""
    if not 2 <= len(labels) <= _FITS:
        return ()
    names = [label if len(label) <= _FITS else f"{label[: _FITS - 1]}…" for label in labels]
    rows = tuple((name, *(f"{count:,}" for count in row)) for name, row in zip(names, confusion, strict=True))
    return (More("taken for", ("true", *names), rows),)


class Evaluation(Protocol):
    """A NamedTuple of metrics, decorated with `shows_report`."""

    def _asdict(self) -> dict[str, Any]: ...

    def report(self, name: str) -> Report:
        """The metrics beside those of trivial baselines. `name` is what the model is called."""


E = TypeVar("E", bound=type[Any])


def shows_report(cls: E) -> E:
    """Decorate the NamedTuple of an evaluation, so that it prints the table that `statewise evaluate` prints."""

    def text(self: Evaluation) -> str:
        return self.report("this model").as_text()

    def page(self: Evaluation) -> str:
        return self.report("this model").as_html()

    cls.__repr__, cls._repr_html_ = text, page  # type: ignore[assignment]  # a NamedTuple has no other base
    return cls


def unknown_note(share: float | None, *, of: str = "tokens") -> str:
    """What a reader should know of words that the vocabulary lacks; where they are many, what to do."""
    if not share:
        return ""
    advice = "; byte or bpe as data.tokenizer reads any text" if share > _MANY else ""
    return f" · {share:.1%} of the {of} unknown{advice}"

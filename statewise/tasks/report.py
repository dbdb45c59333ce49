"""What an evaluation found, in a shape that every task shares: a model between its trivial baselines."""

from typing import Any, NamedTuple, Protocol


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


class Evaluation(Protocol):
    """A NamedTuple of figures that can show itself."""

    def _asdict(self) -> dict[str, Any]: ...

    def report(self, name: str) -> Report:
        """`name` is what the model is called."""

"""What a run measured while it trained: a table with a row for each recorded step, and the learning curve."""

from collections.abc import Iterator, Sequence
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, overload

from statewise.disk import write
from statewise.display import NONE, plain, whole
from statewise.figures import Axis, Figure, Series, Table, html, paint, svg_file
from statewise.specs import UserError, nearest
from statewise.training.journal import read_metrics

_ENDS = 4  # rows that a long table prints at each end
_WHOLE = ("step", "tokens", "clipped")
_ENDINGS = (".svg", ".png", ".csv")


class History(Sequence[dict[str, Any]]):
    """The metrics of a run, step by step: a sequence of rows, and columns by name.

    Columns are `step`, the training `loss`, `lr`, `gradient_norm`, `clipped` (steps whose gradient was clipped),
    `tokens`, and `validation_…` for each validation metric. A value that was not measured at a step is None.

    >>> history = sw.load("runs/lstm").history
    >>> history.columns[:3]
    ['step', 'loss', 'lr']
    >>> history["step"][-1], len(history) == len(history["loss"])
    (40, True)
    """

    def __init__(self, rows: Sequence[dict[str, Any]], *, unit: str = "nats", name: str = "") -> None:
        self.unit = unit  # of the loss; the validation metric of the same name is drawn beside it
        self.name = name
        self.columns: list[str] = list(dict.fromkeys(column for row in rows for column in row))
        merged: dict[int, dict[str, Any]] = {}
        for row in rows:  # training and validation are recorded apart
            merged.setdefault(row["step"], dict.fromkeys(self.columns)).update(row)
        self._rows = list(merged.values())

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, key: slice) -> list[dict[str, Any]]: ...

    @overload
    def __getitem__(self, key: str) -> list[Any]: ...

    def __getitem__(self, key: int | slice | str) -> Any:
        if not isinstance(key, str):
            return self._rows[key]
        if key not in self.columns:
            raise UserError(f"this run has no column {key!r}", fix=nearest(key, self.columns))
        return [row[key] for row in self._rows]

    def curve(self, column: str) -> list[tuple[int, float]]:
        """Pairs of step and value, for the steps at which the column was measured.

        >>> sw.load("runs/lstm").history.curve("validation_nats")[-1][0]
        40
        """
        return [(row["step"], value) for row, value in zip(self._rows, self[column]) if value is not None]

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with the same columns. It needs pandas, which statewise does not install.

        >>> frame = sw.load("runs/lstm").history.to_pandas()
        >>> int(frame["step"].max())
        40
        """
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise UserError("to_pandas() needs pandas, which is not installed", fix="pip install pandas") from None
        return pandas.DataFrame(self._rows, columns=self.columns)

    def figure(self) -> Figure:
        """The learning curve as data: training and validation loss against the step.

        >>> [series.name for series in sw.load("runs/lstm").history.figure().series]
        ['training', 'validation']
        """
        names = {"training": "loss", "validation": f"validation_{self.unit}"}
        curves = {name: self.curve(column) for name, column in names.items() if column in self.columns}
        series = tuple(
            Series(name, tuple(float(step) for step, _ in curve), tuple(value for _, value in curve))
            for name, curve in curves.items()
            if curve
        )
        ends = [f"{curve.name} loss ends at {plain(curve.y[-1])}" for curve in series]
        return Figure(
            name="learning-curve",
            title="Learning curve",
            kind="line",
            x=Axis("step", unit="whole"),
            y=Axis(f"loss ({self.unit.replace('_', ' ')})"),
            series=series,
            reading="Lower is better. The training loss is the mean since the last recorded step.",
            finding=f"{', '.join(ends)}.".capitalize() if ends else "Nothing was recorded.",
        )

    def plot(self, path: str | Path) -> Path:
        """Write the learning curve as a picture: `.svg`, `.png` (needs matplotlib), or its numbers as `.csv`.

        >>> sw.load("runs/lstm").history.plot("curve.svg").name
        'curve.svg'
        """
        path, figure = Path(path), self.figure()
        if path.suffix not in _ENDINGS:
            raise UserError(f"{path.name!r} is not a file type that can be drawn", fix=f"use {', '.join(_ENDINGS)}")
        if not figure.drawable:
            raise UserError(f"{self.name or 'this run'} has recorded no loss, so there is no curve")
        if path.suffix == ".png":
            paint(figure, path)
        else:
            write(path, figure.csv() if path.suffix == ".csv" else svg_file(figure))
        return path

    def _table(self, rows: Sequence[dict[str, Any]]) -> Table:
        return Table.of_texts(
            self.columns, ([_text(row[name], name) for name in self.columns] for row in rows), words=0
        )

    def __repr__(self) -> str:
        title = f"History of {len(self)} step{'' if len(self) == 1 else 's'}{f' of {self.name}' if self.name else ''}"
        if len(self) <= 2 * _ENDS:
            return f"{title}\n{self._table(self._rows).as_text()}"
        lines = self._table([*self._rows[:_ENDS], *self._rows[-_ENDS:]]).as_text().splitlines()
        return "\n".join([title, *lines[: _ENDS + 1], "…", *lines[_ENDS + 1 :]])

    def _repr_html_(self) -> str:
        return f"{self.curve_html()}{html.folded(self._table(self._rows))}"

    def curve_html(self) -> str:
        """The learning curve as an SVG inside HTML; an empty string where nothing was recorded.

        >>> "<svg" in sw.load("runs/lstm").history.curve_html()
        True
        """
        figure = self.figure()
        if not figure.drawable:
            return ""
        return f"{svg_file(figure)}<p>{escape(figure.finding)} <small>{escape(figure.reading)}</small></p>"


def read_history(folder: Path, *, unit: str) -> History:
    """The history of a run folder, from its `metrics.jsonl`; empty where there is none."""
    return History(read_metrics(folder), unit=unit, name=str(folder))


def _text(value: Any, column: str) -> str:
    if value is None:
        return NONE
    return whole(value) if column in _WHOLE else f"{value:.4g}"

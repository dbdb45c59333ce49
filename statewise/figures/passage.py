"""A text with a number at every piece of it, shown as colour."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from statewise.figures.figure import FORMATS, Unit
from statewise.figures.table import csv_text

LEVELS = 8  # shades that a page has


class Passage(NamedTuple):
    """Pieces with their numbers. None: there is nothing to say of that piece."""

    name: str
    title: str
    pieces: tuple[tuple[str, float | None], ...]
    label: str  # what the colour means, with its unit
    reading: str  # how to read it, in a sentence
    finding: str  # what it shows here, computed
    unit: Unit = "plain"
    bounds: tuple[float, ...] = ()  # where a deeper colour begins; by default evenly up to the largest
    signed: bool = False  # two colours, one on each side of 0
    notes: tuple[str, ...] = ()  # a word on each piece, shown when it is pointed at
    missing: tuple[str, ...] = ()

    @property
    def drawable(self) -> bool:
        return bool(self.pieces)

    @property
    def steps(self) -> tuple[float, ...]:
        if self.bounds:
            return self.bounds
        largest = max((abs(value) for _, value in self.pieces if value is not None), default=0.0) or 1.0
        return tuple(largest * at / LEVELS for at in range(1, LEVELS))

    def levels(self) -> list[int]:
        """How deep each piece is coloured; below 0 in the other colour."""
        steps = self.steps
        assert len(steps) < LEVELS, steps
        found = []
        for _, value in self.pieces:
            deep = 0 if value is None else sum(abs(value) >= step for step in steps)
            found.append(-deep if self.signed and value is not None and value < 0 else deep)
        return found

    def said(self, at: int) -> str:
        """What a piece says of itself."""
        value = self.pieces[at][1]
        number = "" if value is None else f"{FORMATS[self.unit](value)} {self.label}"
        return "\n".join(filter(None, [number, self.notes[at] if self.notes else ""]))

    def as_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "kind": "text"}

    def csv(self) -> str:
        titles = ["piece", self.label, *(["note"] if self.notes else [])]
        return csv_text(
            [titles, *([*piece, *([self.notes[at]] if self.notes else [])] for at, piece in enumerate(self.pieces))]
        )


def stretched(bounds: Sequence[float], values: Sequence[float]) -> tuple[float, ...]:
    """The bounds, twice as far apart as often as more than half of the values lie beyond the last: of many words each
    costs much, and one colour for all would show nothing."""
    beyond = sorted(map(abs, values))[len(values) // 2] if values else 0.0
    times = 1.0
    while math.isfinite(beyond) and beyond > bounds[-1] * times:
        times *= 2
    return tuple(bound * times for bound in bounds)

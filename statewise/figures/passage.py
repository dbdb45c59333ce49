"""A text with a number at every piece, shown as colour; and comparing two segmentations of one text."""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from statewise.figures.figure import FORMATS, Unit
from statewise.figures.table import csv_text

LEVELS = 8  # shades that a page has


class Passage(NamedTuple):
    """Pieces with their numbers; None: no number."""

    name: str
    title: str
    pieces: tuple[tuple[str, float | None], ...]
    label: str  # what the colour means, with its unit
    reading: str  # how to read it, in a sentence
    finding: str  # what it shows here, computed
    unit: Unit = "plain"
    bounds: tuple[float, ...] = ()  # where a deeper colour begins; by default evenly up to the largest
    signed: bool = False  # two colours, one on each side of 0
    notes: tuple[str, ...] = ()  # a note on each piece, shown as a tooltip
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
        """The shade of each piece; below 0 in the other colour."""
        steps = self.steps
        assert len(steps) < LEVELS, steps
        shades = []
        for _, value in self.pieces:
            deep = 0 if value is None else sum(abs(value) >= step for step in steps)
            shades.append(-deep if self.signed and value is not None and value < 0 else deep)
        return shades

    def said(self, at: int) -> str:
        """The tooltip of a piece."""
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


def widened(bounds: Sequence[float], values: Sequence[float]) -> tuple[float, ...]:
    """The bounds, doubled until at most half of the values lie beyond the last and share its colour."""
    beyond = sorted(map(abs, values))[len(values) // 2] if values else 0.0
    times = 1.0
    while math.isfinite(beyond) and beyond > bounds[-1] * times:
        times *= 2
    return tuple(bound * times for bound in bounds)


Pieces = Sequence[tuple[str, float]]


def text_of(pieces: Pieces) -> str:
    return "".join(piece for piece, _ in pieces)


def ends(pieces: Pieces) -> list[int]:
    return list(accumulate(len(piece) for piece, _ in pieces))


def shared_ends(several: Sequence[Pieces]) -> list[int]:
    """Where all of them have an end: the finest segmentation in which they can be compared."""
    return sorted(set.intersection(*(set(ends(pieces)) for pieces in several)) - {0})


def between(pieces: Pieces, at: Sequence[int]) -> list[float]:
    """The cost between each two ends."""
    paid = {0: 0.0}
    paid.update(zip(ends(pieces), accumulate(cost for _, cost in pieces)))
    return [paid[end] - paid[start] for start, end in zip([0, *at[:-1]], at)]


def merge_split_characters(tokens: Pieces) -> list[tuple[str, float]]:
    """Tokens that are parts of one character become one piece with the sum of their costs."""
    merged, pending = [], 0.0
    for piece, cost in tokens:
        pending += cost
        if piece:
            merged.append((piece, pending))
            pending = 0.0
    return merged

"""Labels inside a drawing: their width, shortening, and placement without overlap."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from statewise.display import clusters, columns

FONT = 12.0
SMALL = 11.0  # the size of names beside points and curves
GAP = 12.5  # pixels between the middles of two lines of names
_DISTANCES = (9.0, 16.0, 26.0, 38.0, 52.0, 68.0, 86.0, 106.0)  # from a point to its name
_DIRECTIONS = 16

Box = tuple[float, float, float, float]  # left, top, right, bottom


class Placed(NamedTuple):
    """Where a name stands: its anchor (its start, middle or end), the middle of its line, where a line that leads to it
    ends, and whether it needs one."""

    x: float
    middle: float
    anchor: str
    edge: float
    far: bool


def text_width(text: str, font: float = FONT) -> float:
    """Estimated width in pixels: Latin letters by their average, East Asian ones by their square."""
    return sum(font if columns(letter) == 2 else font * 0.57 for letter in clusters(text))


def shortened(text: str, room: float, font: float = FONT) -> str:
    """The text, cut to the room with an ellipsis."""
    if text_width(text, font) <= room:
        return text
    kept, wide = [], text_width("…", font)
    for letter in clusters(text):
        wide += text_width(letter, font)
        if wide > room:
            break
        kept.append(letter)
    return "".join(kept) + "…"


def distinguishable(names: Sequence[str], room: float, font: float = FONT) -> list[str]:
    """Names cut to the room. Names that would be cut to the same text lose their middle instead."""
    short = [shortened(name, room, font) for name in names]
    alike = {label for label in short if len({name for name, cut in zip(names, short) if cut == label}) > 1}
    return [_without_middle(name, room, font) if label in alike else label for name, label in zip(names, short)]


def _without_middle(name: str, room: float, font: float) -> str:
    head = shortened(name, room / 2, font)
    tail: list[str] = []
    left = room - text_width(head, font)
    for letter in reversed(clusters(name)):
        left -= text_width(letter, font)
        if left < 0:
            break
        tail.append(letter)
    return head + "".join(reversed(tail))


def spread(wanted: Sequence[float], *, low: float, high: float, gap: float = GAP) -> list[float]:
    """Heights as near to the wanted ones as a gap between neighbours allows, in the same order.

    >>> spread([10.0, 10.0, 50.0], low=0.0, high=100.0, gap=10.0)
    [5.0, 15.0, 50.0]
    """
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    runs: list[list[float]] = []  # of names that touch: [how many, their middle]
    for at in order:
        runs.append([1.0, min(max(wanted[at], low), high)])
        while len(runs) > 1 and runs[-1][1] - runs[-2][1] < gap * (runs[-1][0] + runs[-2][0]) / 2:
            (many, middle), (more, other) = runs[-2:]
            runs[-2:] = [[many + more, (many * middle + more * other) / (many + more)]]
        half = gap * (runs[-1][0] - 1) / 2
        runs[-1][1] = min(max(runs[-1][1], low + half), max(high - half, low + half))
    # Pushed away from an edge, a run may touch the one before it: the last pass goes downwards from the top.
    heights: list[float] = []
    for many, middle in runs:
        heights += [middle + gap * (at - (many - 1) / 2) for at in range(int(many))]
    for at in range(1, len(heights)):
        heights[at] = max(heights[at], heights[at - 1] + gap)
    placed = [0.0] * len(wanted)
    for at, height in zip(order, heights):
        placed[at] = height
    return placed


def beside(
    points: Sequence[tuple[float, float]], names: Sequence[str], *, frame: Box, busy: Sequence[Box]
) -> list[Placed | None]:
    """A free place near each point for its name; None: there is none."""
    occupied = [*busy, *((a - 6, b - 6, a + 6, b + 6) for a, b in points)]
    places: list[Placed | None] = []
    for point, name in zip(points, names):
        wide = 1.12 * text_width(name, SMALL)  # fonts differ, and names may not touch
        for distance, left, middle in _places(*point, wide):
            box = (left - 2, middle - 6, left + wide + 2, middle + 6)
            inside = box[0] > frame[0] and box[1] > frame[1] and box[2] < frame[2] and box[3] < frame[3]
            if inside and not any(_overlap(box, other) for other in occupied):
                occupied.append(box)
                places.append(_anchored(point[0], left, wide, middle, far=distance > _DISTANCES[0]))
                break
        else:
            places.append(None)
    return places


def _anchored(x: float, left: float, wide: float, middle: float, *, far: bool) -> Placed:
    """The anchor is on the side of the point, since the real width is not known."""
    if left >= x:
        return Placed(left, middle, "start", left - 2, far)
    if left + wide <= x:
        return Placed(left + wide, middle, "end", left + wide + 2, far)
    return Placed(left + wide / 2, middle, "middle", x, far)


def _places(x: float, y: float, wide: float) -> Iterator[tuple[float, float, float]]:
    """Around a point, the nearest first and the right side before the others: distance, left, middle."""
    for distance in _DISTANCES:
        for turn in sorted(range(_DIRECTIONS), key=lambda turn: (turn % (_DIRECTIONS // 2), turn)):
            angle = 2 * math.pi * turn / _DIRECTIONS
            across, down = math.cos(angle), math.sin(angle)
            left = x + distance * across - wide * (1 - across) / 2
            yield distance, left, y + (distance + 4 * abs(down)) * down


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]

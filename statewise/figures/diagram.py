"""Drawings of architectures: boxes on a grid and arrows between them; an unrolled network in one call."""

import math
import re
from collections.abc import Sequence
from html import escape
from typing import Literal, NamedTuple

from statewise.figures.drawing import standalone
from statewise.figures.label import text_width
from statewise.figures.svg import svg

Kind = Literal["input", "state", "output", "map", "text"]

_ACROSS, _DOWN = 84.0, 66.0  # pixels of a cell of the grid
_HIGH, _LEAST, _MARGIN = 34.0, 44.0, 14.0
_HEAD = 7.0  # pixels of the head of an arrow
_FONT = 14.0
_SCRIPT = re.compile(r"([_^])(\{[^}]*\}|\w)")
Point = tuple[float, float]


class Box(NamedTuple):
    """A box, or with kind `text` only its text, centred at a place of the grid. `h_t` and `h_{t-1}` have subscripts."""

    name: str
    column: float
    row: float
    text: str
    kind: Kind = "state"

    @property
    def centre(self) -> Point:
        return self.column * _ACROSS, self.row * _DOWN

    @property
    def width(self) -> float:
        wide = text_width(_SCRIPT.sub(lambda match: match[2].strip("{}"), self.text), _FONT)
        return wide if self.kind == "text" else max(wide + 20, _LEAST)

    def edge(self, towards: Point) -> Point:
        """Where a straight line from the centre to a point leaves the box."""
        (x, y), (dx, dy) = self.centre, (towards[0] - self.centre[0], towards[1] - self.centre[1])
        reach = min(
            self.width / 2 / abs(dx) if dx else math.inf,
            _HIGH / 2 / abs(dy) if dy else math.inf,
        )
        round_ = _HIGH / 2
        flat = self.width / 2 - round_  # from the centre to where the round ends of a state begin
        if self.kind == "state" and abs(dx) * reach > flat:
            along, far = abs(dx) * flat, dx * dx + dy * dy
            reach = (along + math.sqrt(along * along - far * (flat * flat - round_ * round_))) / far
        return x + dx * reach, y + dy * reach


class Arrow(NamedTuple):
    """From box to box; to itself, it is a loop. `bow` moves its middle aside, in cells."""

    start: str
    end: str
    text: str = ""
    dashed: bool = False
    bow: float = 0.0


class Diagram(NamedTuple):
    title: str
    description: str  # the text alternative: what is connected with what
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    def svg(self) -> str:
        """As a file, in light colours; a page that includes it colours it by its own theme."""
        return standalone(self.draw())

    def draw(self) -> str:
        boxes = {box.name: box for box in self.boxes}
        loops = {arrow.start for arrow in self.arrows if arrow.start == arrow.end}
        left = min(box.centre[0] - box.width / 2 for box in self.boxes) - _MARGIN
        right = max(box.centre[0] + box.width / 2 + (40 if box.name in loops else 0) for box in self.boxes) + _MARGIN
        top = min(box.centre[1] for box in self.boxes) - _HIGH / 2 - _MARGIN
        bottom = max(box.centre[1] for box in self.boxes) + _HIGH / 2 + _MARGIN
        heights = [_bend(arrow, boxes[arrow.start], boxes[arrow.end])[1] for arrow in self.arrows]
        top, bottom = min([top, *(at - _MARGIN for at in heights)]), max([bottom, *(at + _MARGIN for at in heights)])
        parts = [svg(right - left, bottom - top, title=self.title, finding=self.description)]
        parts.append(f'<g transform="translate({-left:.1f} {-top:.1f})">')
        parts += [_arrow(arrow, boxes[arrow.start], boxes[arrow.end]) for arrow in self.arrows]
        parts += [_box(box) for box in self.boxes]
        return "".join([*parts, "</g></svg>"])


def unrolled(
    title: str,
    description: str,
    *,
    inputs: Sequence[str] = (),
    states: Sequence[str],
    outputs: Sequence[str] = (),
    maps: tuple[str, str, str] = ("", "", ""),
) -> Diagram:
    """A recurrent network along time: inputs below, states in a chain, outputs above; an empty text leaves a place out.

    If there is one more state than inputs, the first is the initial one. `maps` names the arrows: into the state, from
    state to state, out of it.
    """
    into, along, out = maps
    before = len(states) - max(len(inputs), len(outputs))
    boxes = [Box(f"h{at}", at, 1, text) for at, text in enumerate(states)]
    arrows = [Arrow(f"h{at}", f"h{at + 1}", along) for at in range(len(states) - 1)]
    for at, text in enumerate(inputs, start=before):
        if text:
            boxes.append(Box(f"x{at}", at, 2, text, "input"))
            arrows.append(Arrow(f"x{at}", f"h{at}", into))
    for at, text in enumerate(outputs, start=before):
        if text:
            boxes.append(Box(f"y{at}", at, 0, text, "output"))
            arrows.append(Arrow(f"h{at}", f"y{at}", out))
    return Diagram(title, description, tuple(boxes), tuple(arrows))


def _box(box: Box) -> str:
    x, y = box.centre
    shape = ""
    if box.kind != "text":
        round_ = _HIGH / 2 if box.kind == "state" else 4
        shape = (
            f'<rect class="box {box.kind}" x="{x - box.width / 2:.1f}" y="{y - _HIGH / 2:.1f}"'
            f' width="{box.width:.1f}" height="{_HIGH:g}" rx="{round_:g}"/>'
        )
    return shape + _text(box.text, x, y + 5)


def _bend(arrow: Arrow, start: Box, end: Box) -> Point:
    """The control point of an arrow's curve: on the straight line, or beside it."""
    (x0, y0), (x1, y1) = start.centre, end.centre
    across = arrow.bow * _DOWN / (math.hypot(x1 - x0, y1 - y0) or 1.0)
    return (x0 + x1) / 2 + (y1 - y0) * across, (y0 + y1) / 2 - (x1 - x0) * across


def _arrow(arrow: Arrow, start: Box, end: Box) -> str:
    dash = ' stroke-dasharray="5 4"' if arrow.dashed else ""
    if start is end:
        y, side = start.centre[1], start.centre[0] + start.width / 2
        out = side + 38
        path = f"M{side:.1f} {y - 9:.1f}C{out:.1f} {y - 26:.1f} {out:.1f} {y + 26:.1f} {side + 6:.1f} {y + 11:.1f}"
        head = _head((side + 30, y + 18), (side, y + 9))
        label = (side + 32, y - 18)
        upright = False
    else:
        bend = _bend(arrow, start, end)
        first, last = start.edge(bend), end.edge(bend)
        back = math.hypot(bend[0] - last[0], bend[1] - last[1]) or 1.0
        short = last[0] + (bend[0] - last[0]) * _HEAD / back, last[1] + (bend[1] - last[1]) * _HEAD / back
        path = f"M{first[0]:.1f} {first[1]:.1f}Q{bend[0]:.1f} {bend[1]:.1f} {short[0]:.1f} {short[1]:.1f}"
        head = _head(bend, last)
        middle = (first[0] + 2 * bend[0] + last[0]) / 4, (first[1] + 2 * bend[1] + last[1]) / 4
        wide, high = abs(last[0] - first[0]), abs(last[1] - first[1])
        upright = wide < high
        if upright:  # beside the arrow, and far enough for its slope
            label = middle[0] + 5 + 6 * wide / high, middle[1] + 4
        else:
            label = middle[0], middle[1] - 7 - text_width(arrow.text, 12.0) / 2 * high / wide
    name = _text(arrow.text, *label, size=12.0, anchor="start" if upright else "middle") if arrow.text else ""
    return f'<path class="arrow" d="{path}"{dash}/>{head}{name}'


def _head(behind: Point, tip: Point) -> str:
    angle = math.atan2(tip[1] - behind[1], tip[0] - behind[0])
    corners = [
        (tip[0] - _HEAD * math.cos(angle + turn), tip[1] - _HEAD * math.sin(angle + turn)) for turn in (0.45, -0.45)
    ]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [tip, *corners])
    return f'<polygon class="head" points="{points}"/>'


def _text(text: str, x: float, y: float, *, size: float = _FONT, anchor: str = "middle") -> str:
    parts, before = [], 0
    for piece, shift in _runs(text):
        smaller = ' font-size="72%"' if shift else ""
        parts.append(
            f'<tspan dy="{shift - before}"{smaller}>{escape(piece)}</tspan>' if shift or before else escape(piece)
        )
        before = shift
    return f'<text text-anchor="{anchor}" x="{x:.1f}" y="{y:.1f}" font-size="{size:g}">{"".join(parts)}</text>'


def _runs(text: str) -> list[tuple[str, int]]:
    """Pieces of a text with their shift down, in pixels: that of subscripts is positive."""
    runs, at = [], 0
    for match in _SCRIPT.finditer(text):
        runs += [(text[at : match.start()], 0), (match[2].strip("{}"), 4 if match[1] == "_" else -5)]
        at = match.end()
    return [(piece, shift) for piece, shift in [*runs, (text[at:], 0)] if piece]

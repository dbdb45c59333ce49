"""A picture of whatever can be drawn: one place that knows which form needs which hand."""

from collections.abc import Mapping
from html import escape
from typing import TypeAlias

from statewise.figures import svg
from statewise.figures.figure import Figure
from statewise.figures.passage import Passage, visible
from statewise.figures.svg_map import draw_map

Drawing: TypeAlias = Figure | Passage

_CHARACTER, _LINE = 7.3, 19.0  # pixels of the fixed pitch that a text is drawn with
_HEAT, _COOL = "#e8590c", "#0b62b8"


def draw(one: Drawing, *, colours: Mapping[str, int] | None = None, width: int = 640) -> str:
    """One `<svg>`, drawn for a width. `colours` numbers the entries that series belong to."""
    assert one.drawable, one.name
    if isinstance(one, Passage):
        return draw_passage(one, width=width)
    if one.kind == "map":
        return draw_map(one, width=width)
    return svg.draw(one, colours=colours or {}, width=width)


def draw_passage(one: Passage, *, width: int) -> str:
    """Lines of fixed pitch; the colour of a piece lies behind its letters."""
    columns = int((width - 16) // _CHARACTER)
    lines, behind = [""], []
    for at, ((piece, _), level) in enumerate(zip(one.pieces, one.levels())):
        first = len(lines[-1])
        for letter in visible(piece):
            if len(lines[-1]) >= columns:
                behind.append(_shade(one, at, level, len(lines) - 1, first, columns))
                lines.append("")
                first = 0
            lines[-1] += letter
            if letter == "⏎":
                behind.append(_shade(one, at, level, len(lines) - 1, first, len(lines[-1])))
                lines.append("")
                first = 0
        behind.append(_shade(one, at, level, len(lines) - 1, first, len(lines[-1])))
    height = 16 + len(lines) * _LINE
    # Whatever letters the reader has, a line is as long as its number of them: the colours stay where they belong.
    written = [
        f'<text class="piece" xml:space="preserve" x="8" y="{21 + row * _LINE:.1f}" lengthAdjust="spacing"'
        f' textLength="{len(line) * _CHARACTER:.1f}">{escape(line)}</text>'
        for row, line in enumerate(lines)
        if line.strip()
    ]
    return svg.svg(width, height, title=one.title, finding=one.finding) + "".join([*behind, *written, "</svg>"])


def _shade(one: Passage, at: int, level: int, row: int, first: int, last: int) -> str:
    """Of one piece on one line."""
    if not level or last <= first:
        return ""
    return (
        f'<rect x="{8 + first * _CHARACTER:.1f}" y="{8 + row * _LINE:.1f}" width="{(last - first) * _CHARACTER:.1f}"'
        f' height="{_LINE - 2:g}" fill="{_HEAT if level > 0 else _COOL}"'
        f' fill-opacity="{min(abs(level) * 0.1, 0.9):.1f}">'
        f"<title>{escape(one.said(at))}</title></rect>"
    )

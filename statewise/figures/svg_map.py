"""A coloured grid as SVG, and its palette: few cells are drawn one by one, many as one image."""

import base64
import struct
import zlib
from collections.abc import Sequence
from html import escape

from statewise.figures.figure import FORMATS, Axis, Figure, Grid, ticks
from statewise.figures.label import distinguishable, shortened, text_width
from statewise.figures.svg import svg
from statewise.figures.svg_axis import Frame, axis_labels, tick_text

Colour = tuple[int, int, int]

# Lightness falls evenly along each half: the order is kept in greyscale and for the colour-blind.
DEEPENING: tuple[Colour, ...] = ((253, 246, 236), (248, 205, 140), (233, 122, 58), (168, 42, 76), (59, 15, 74))
DIVERGING: tuple[Colour, ...] = ((8, 64, 129), (98, 160, 214), (245, 245, 242), (232, 144, 88), (150, 52, 4))


def colour(depth: float, *, signed: bool = False) -> Colour:
    """Of a position on the palette, 0 to 1."""
    stops = DIVERGING if signed else DEEPENING
    place = min(max(depth, 0.0), 1.0) * (len(stops) - 1)
    at = min(int(place), len(stops) - 2)
    part = place - at
    first, second = stops[at], stops[at + 1]
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(first, second))
    return red, green, blue


def css(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def png(rows: Sequence[Sequence[Colour | None]]) -> bytes:
    """Pixels as a PNG file; None is transparent."""
    lines = [b"\0" + b"".join(bytes((*value, 255)) if value else b"\0\0\0\0" for value in row) for row in rows]
    size = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 6, 0, 0, 0)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    body = chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"".join(lines), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


_CELLS = 1600  # up to which cells are drawn one by one, each with its value
_LABEL = 10.0  # pixels that a line of labels needs
_SMALL = 11.0  # the size of names
_ROOM = 98.0  # pixels that names of rows may have in any case
_KEY = 66.0  # and those beside the map that the key of colours needs


def draw_map(figure: Figure, *, width: int) -> str:
    grid = figure.grid
    assert grid is not None
    rows, columns = len(grid.values), len(grid.values[0])
    largest = 26.0 if columns > 12 else 48.0
    # Row names get the room that cells of the largest size leave; column names, which may be upright, a share.
    room = max(width * 0.3 if not figure.x.categories else width - 24 - _KEY - largest * columns, _ROOM)
    names_y = distinguishable(figure.y.categories, room, _SMALL)
    names_x = distinguishable(figure.x.categories, max(0.3 * width, _ROOM), _SMALL)
    left = 24.0 + max((text_width(name, _SMALL) for name in names_y), default=34.0)
    longest = max((text_width(name, _SMALL) for name in names_x), default=12.0)
    across = width - left - _KEY
    cell = min(across / columns, largest)
    level = (
        not names_x or longest <= cell - 4
    )  # names of columns lie where all of them fit, and stand upright otherwise
    below = 22.0 if level else 10 + longest
    tall = max(min(min(cell, 26.0) * rows, width * 1.1), 96.0)
    if rows * columns > 1 and not names_x:
        cell = across / columns  # positions fill the width
        tall = min(max(cell * rows, width * 0.3), width * 0.75)
    frame = Frame(left, 8, left + cell * columns, 8 + tall)
    height = frame.bottom + below + 24
    high = tall / rows
    parts = [svg(width, height, title=figure.title, finding=figure.finding)]
    parts += _cells(figure, grid, frame, cell, high) if rows * columns <= _CELLS else [_image(grid, frame)]
    parts.append(f'<path class="frame" d="M{left:.1f} {frame.top}H{frame.right:.1f}V{frame.bottom:.1f}H{left:.1f}z"/>')
    parts += _rows(figure.y, names_y, grid.y, frame, high)
    parts += _columns(figure.x, names_x, grid.x, frame, cell, level=level)
    parts += axis_labels(figure, frame, x_room=width - 16, y_room=frame.bottom, y=height - 6, width=width, x=12)
    parts += _legend(grid, frame, width)
    return "".join([*parts, "</svg>"])


def pixels(grid: Grid) -> list[list[tuple[int, int, int] | None]]:
    return [
        [None if value is None else colour(grid.depth(value), signed=grid.signed) for value in row]
        for row in grid.values
    ]


def _cells(figure: Figure, grid: Grid, frame: Frame, wide: float, high: float) -> list[str]:
    parts, form = [], FORMATS[grid.unit]
    for at, (row, shades) in enumerate(zip(grid.values, pixels(grid))):
        for across, (value, shade) in enumerate(zip(row, shades)):
            if value is None or shade is None:
                continue
            said = f"{_word(figure.y, grid.y, at)} · {_word(figure.x, grid.x, across)}: {form(value)}"
            parts.append(
                f'<rect x="{frame.left + across * wide:.1f}" y="{frame.top + at * high:.1f}" width="{wide + 0.2:.1f}"'
                f' height="{high + 0.2:.1f}" fill="{css(shade)}"><title>{escape(said)}</title></rect>'
            )
    return parts


def _image(grid: Grid, frame: Frame) -> str:
    data = base64.b64encode(png(pixels(grid))).decode()
    return (
        f'<image class="map" x="{frame.left:.1f}" y="{frame.top:.1f}" width="{frame.right - frame.left:.1f}"'
        f' height="{frame.bottom - frame.top:.1f}" preserveAspectRatio="none" data-rows="{len(grid.values)}"'
        f' data-columns="{len(grid.values[0])}" href="data:image/png;base64,{data}"/>'
    )


def _rows(axis: Axis, names: Sequence[str], values: Sequence[float], frame: Frame, high: float) -> list[str]:
    if names:
        every = max(1, -(-len(names) * 12 // max(int(frame.bottom - frame.top), 1)))
        labels = [(float(at), name) for at, name in enumerate(names) if at % every == 0]
    else:
        labels = _numbers(axis, values, most=6)
    return [
        f'<text class="tick" font-size="{_SMALL:g}" text-anchor="end"'
        f' x="{frame.left - 5:.1f}" y="{frame.top + (at + 0.5) * high + 4:.1f}">{escape(name)}</text>'
        for at, name in labels
    ]


def _columns(
    axis: Axis, names: Sequence[str], values: Sequence[float], frame: Frame, wide: float, *, level: bool
) -> list[str]:
    if level:
        return [
            f'<text class="tick" font-size="{_SMALL:g}" text-anchor="middle"'
            f' x="{frame.left + (at + 0.5) * wide:.1f}" y="{frame.bottom + 15:.1f}">{escape(name)}</text>'
            for at, name in (enumerate(names) if names else _numbers(axis, values, most=6))
        ]
    every = max(1, -(-int(_LABEL + 2) // max(int(wide), 1)))
    parts = []
    for at, name in enumerate(names):
        if at % every == 0:
            left, top = frame.left + (at + 0.5) * wide + 4, frame.bottom + 6
            parts.append(
                f'<text class="tick" font-size="{_SMALL:g}" transform="translate({left:.1f} {top:.1f}) rotate(-90)"'
                f' text-anchor="end">{escape(name)}</text>'
            )
    return parts


def _numbers(axis: Axis, values: Sequence[float], *, most: int) -> list[tuple[float, str]]:
    """Round values, and the column or row each falls in."""
    first, last = values[0], values[-1]
    if first == last:
        return [(0, tick_text(axis, first, [first]))]
    marks = ticks(Axis("", unit=axis.unit), min(first, last), max(first, last), most=most)
    step = (last - first) / (len(values) - 1)
    return [((tick - first) / step, tick_text(axis, tick, marks)) for tick in marks]


def _legend(grid: Grid, frame: Frame, width: int) -> list[str]:
    """A strip of the palette with the values of its ends."""
    left, tall = frame.right + 14, min(frame.bottom - frame.top - 16, 140.0)
    steps = 24
    parts = []
    for at in range(steps):
        shade = css(colour(1 - at / (steps - 1), signed=grid.signed))
        top = frame.top + 12 + at * tall / steps
        parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="11" height="{tall / steps + 0.3:.1f}" fill="{shade}"/>'
        )
    low, high = grid.ends()
    form = FORMATS[grid.unit]
    for value, top in ((high, frame.top + 8), (low, frame.top + tall + 24)):
        shown = escape(shortened(form(value), width - left + 4))
        parts.append(f'<text class="tick" font-size="10" x="{left - 4:.1f}" y="{top:.1f}">{shown}</text>')
    middle = frame.top + 12 + tall / 2
    label = escape(shortened(grid.label, frame.bottom - frame.top, 10))
    parts.append(
        f'<text class="tick" font-size="10" transform="translate({left + 23:.1f} {middle:.1f}) rotate(-90)"'
        f' text-anchor="middle">{label}</text>'
    )
    return parts


def _word(axis: Axis, values: Sequence[float], at: int) -> str:
    return axis.categories[at] if axis.categories else f"{axis.label} {values[at]:g}"

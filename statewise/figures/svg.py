"""A figure as SVG, by hand: no library, no script. Colours come from the page, so it follows its theme."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from statewise.figures.figure import FORMATS, Axis, Figure, Series, bounds, ticks
from statewise.figures.letter import clusters, columns

HUES = 8  # the page's --c0 … ; entries beyond them differ by dash and by mark
_DASHES = ("", "7 3", "2 3")
_MARKED = 48  # points of a curve that are marked one by one
_FONT = 12.0
_LINE = 18.0


class Frame(NamedTuple):
    """Where the plot lies inside the picture, in pixels."""

    left: float
    top: float
    right: float
    bottom: float


class Ruler(NamedTuple):
    """From a value to a pixel."""

    axis: Axis
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.axis.scale == "log":
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def draw(figure: Figure, *, colours: Mapping[str, int], width: int) -> str:
    """One `<svg>`, drawn for a width: the text keeps its size, the rest is arranged around it."""
    assert figure.series, figure.name
    narrow = width < 480
    names = _legend(figure, width=width - 16)
    rows = len(figure.y.categories)
    side = min(width - 90.0, 420.0)  # of a plane, whose axes are equal
    row = max(22.0, 9.0 * len(figure.series) + 8) if figure.kind == "bars" else 22.0
    plot = rows * row + 16 if rows else side if figure.kind == "plane" else width * (0.72 if narrow else 0.46)
    y_ticks, y_low, y_high = scale(figure, along="y", most=6)
    left = 14 + _FONT * 1.6 + max(text_width(tick_text(figure.y, tick, y_ticks)) for tick in y_ticks)
    left = min(left, width * 0.42)
    right = left + side if figure.kind == "plane" else width - 14
    frame = Frame(left, 10, min(right, width - 14), 10 + plot)
    height = frame.bottom + 48 + len(names) * _LINE + 4
    x_ticks, x_low, x_high = scale(figure, along="x", most=4 if narrow else 7)
    x = Ruler(figure.x, x_low, x_high, frame.left + 4, frame.right - 4)
    if rows:
        y = Ruler(Axis(figure.y.label), -0.6, rows - 0.4, frame.top, frame.bottom)
    else:
        y = Ruler(figure.y, y_low, y_high, frame.bottom, frame.top)
    parts = [
        svg(width, height, title=figure.title, finding=figure.finding),
        *_grid(figure, frame, x, y, x_ticks, y_ticks),
        f'<clipPath id="clip-{figure.name}-{width}"><path d="M{left:.1f} {frame.top - 6:.1f}H{frame.right + 8:.1f}'
        f'V{frame.bottom:.1f}H{left:.1f}z"/></clipPath><g clip-path="url(#clip-{figure.name}-{width})">'
        if figure.y.limits
        else "<g>",
        *_circle(figure, x, y),
        *[part for at, series in enumerate(figure.series) for part in _series(figure, series, at, colours, x, y)],
        "</g>",
    ]
    if figure.kind == "points":
        parts += _labels(figure, frame, x, y)
    for row, line in enumerate(names):
        top = frame.bottom + 52 + row * _LINE
        for offset, number, name in line:
            parts.append(_key(figure, number, colours, 8 + offset, top, name))
    return "".join([*parts, "</svg>"])


def text_width(text: str, font: float = _FONT) -> float:
    """About how wide a text is: Latin letters by their average, East Asian ones by their square."""
    return sum(font if columns(letter) == 2 else font * 0.57 for letter in clusters(text))


def shortened(text: str, room: float, font: float = _FONT) -> str:
    """The text, or as much of it as there is room for."""
    if text_width(text, font) <= room:
        return text
    kept, wide = [], text_width("…", font)
    for letter in clusters(text):
        wide += text_width(letter, font)
        if wide > room:
            break
        kept.append(letter)
    return "".join(kept) + "…"


def told_apart(names: Sequence[str], room: float, font: float = _FONT) -> list[str]:
    """Each name as far as there is room. Those that would look alike, as they begin alike, lose their middle."""
    short = [shortened(name, room, font) for name in names]
    alike = {one for one in short if len({name for name, cut in zip(names, short) if cut == one}) > 1}
    return [_without_middle(name, room, font) if one in alike else one for name, one in zip(names, short)]


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


def svg(width: float, height: float, *, title: str, finding: str) -> str:
    """The opening of a picture, with the words for whoever cannot see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' width="{width:.0f}" height="{height:.0f}" class="chart" font-size="{_FONT:g}">'
        f"<title>{escape(title)}</title><desc>{escape(finding)}</desc>"
    )


def colour_of(series: Series, number: int, colours: Mapping[str, int]) -> int:
    return number if series.entry is None else colours[series.entry]


def scale(figure: Figure, *, along: str, most: int) -> tuple[list[float], float, float]:
    axis = figure.x if along == "x" else figure.y
    if axis.scale == "category":
        return [float(at) for at in range(len(axis.categories))], 0.0, float(len(axis.categories))
    if figure.kind == "plane":  # one scale for both
        furthest = max((abs(value) for series in figure.series for value in (*series.x, *series.y)), default=0.0)
        reach = 1.08 * max(furthest, figure.circle or 0.0) or 1.0
        return ticks(axis, -reach, reach, most=most), -reach, reach
    values = [value for series in figure.series for value in (series.x if along == "x" else series.y)]
    if (along == "x") == (figure.kind in ("dots", "bars")):
        values += [value for series in figure.series for value in (*series.low, *series.high)]
        values += [0.0] if figure.kind == "bars" else []
    if axis.scale == "log":
        values = [value for value in values if value > 0]
    low, high = bounds(axis, values)
    return ticks(axis, low, high, most=most), low, high


def tick_text(axis: Axis, value: float, all_of_them: Sequence[float]) -> str:
    if axis.scale == "category":
        return axis.categories[round(value)]
    if axis.unit != "plain":
        form = FORMATS[axis.unit]
        # Close together, three digits are too few to tell two ticks apart.
        alike = axis.unit == "count" and len({form(tick) for tick in all_of_them}) < len(all_of_them)
        return f"{value:,.0f}" if alike else form(value)
    texts = [f"{tick:.6g}" for tick in all_of_them]
    if len(set(texts)) < len(texts):  # far from 0 and close together
        return f"{value:.12g}"
    places = max((len(text.partition(".")[2]) for text in texts), default=0)
    return f"{value:.{places}f}" if axis.scale == "linear" and "e" not in "".join(texts) else f"{value:.6g}"


def _grid(
    figure: Figure, frame: Frame, x: Ruler, y: Ruler, x_ticks: Sequence[float], y_ticks: Sequence[float]
) -> list[str]:
    left, top, right, bottom = frame
    parts = []
    last = -math.inf
    for tick in x_ticks:
        at, text = x.at(tick), tick_text(figure.x, tick, x_ticks)
        half = text_width(text) / 2
        parts.append(f'<line class="grid" x1="{at:.1f}" y1="{top:.1f}" x2="{at:.1f}" y2="{bottom:.1f}"/>')
        middle = min(max(at, half + 2), right + 12 - half)
        if middle - half > last + 6:  # a label that would touch the one before it is left out, its line stays
            parts.append(
                f'<text class="tick" x="{middle:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{text}</text>'
            )
            last = middle + half
    names = told_apart([tick_text(figure.y, tick, y_ticks) for tick in y_ticks], left - _FONT * 1.6 - 8)
    for tick, name in zip(y_ticks, names):
        at, shown = y.at(tick), escape(name)
        parts.append(f'<line class="grid" x1="{left:.1f}" y1="{at:.1f}" x2="{right:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick" x="{left - 6:.1f}" y="{at + 4:.1f}" text-anchor="end">{shown}</text>')
    parts.append(f'<path class="axis" d="M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}"/>')
    middle = (left + right) / 2
    label = escape(shortened(figure.x.label, right))
    at = min(max(middle, text_width(figure.x.label) / 2 + 4), right)
    parts.append(f'<text class="label" x="{at:.1f}" y="{bottom + 36:.1f}" text-anchor="middle">{label}</text>')
    if figure.y.label:
        label = escape(shortened(figure.y.label, bottom - top))
        parts.append(
            f'<text class="label" transform="translate(13 {(top + bottom) / 2:.1f}) rotate(-90)"'
            f' text-anchor="middle">{label}</text>'
        )
    return parts


def _series(figure: Figure, series: Series, number: int, colours: Mapping[str, int], x: Ruler, y: Ruler) -> list[str]:
    colour = colour_of(series, number, colours)
    places = [(x.at(a), y.at(b)) for a, b in zip(series.x, series.y)]
    parts = [f'<g class="series c{colour % HUES}" data-series="{number}">']
    if figure.kind == "bars":
        return [*parts, *_bars(figure, series, number, places, x), "</g>"]
    if figure.kind == "line":
        parts += _line(series, places, colour, x, y)
    elif figure.kind == "dots":
        parts += [
            f'<path class="bar" d="M{x.at(low):.1f} {at:.1f}H{x.at(high):.1f}"/>'
            for (_, at), low, high in zip(places, series.low, series.high)
        ]
    else:
        parts += [
            f'<path class="bar" d="M{at:.1f} {y.at(low):.1f}V{y.at(high):.1f}"/>'
            for (at, _), low, high in zip(places, series.low, series.high)
        ]
    small = series.small or figure.kind in ("scatter", "plane") or (figure.kind == "line" and len(places) > 1)
    radius = 3.0 if small else 5.5
    # Marks on all of many curves, or on a curve of many points, hide them.
    sparse = figure.kind == "line" and (len(figure.series) > HUES or len(places) > _MARKED)
    for at, (left, top) in enumerate(places):
        hidden = sparse and at < len(places) - 1
        seen = f'<circle class="hit" cx="{left:.1f}" cy="{top:.1f}" r="5"/>' if hidden else ""
        seen = seen or _mark(colour, left, top, radius)
        parts.append(f"<g><title>{escape(tooltip(figure, series, at))}</title>{seen}</g>")
    return [*parts, "</g>"]


def _circle(figure: Figure, x: Ruler, y: Ruler) -> list[str]:
    if figure.circle is None:
        return []
    radius = x.at(figure.circle) - x.at(0.0)
    return [f'<circle class="axis" cx="{x.at(0.0):.1f}" cy="{y.at(0.0):.1f}" r="{radius:.1f}"/>']


def _bars(figure: Figure, series: Series, number: int, places: Sequence[tuple[float, float]], x: Ruler) -> list[str]:
    """One below the other inside a row, from 0; what is bounded has a line across its end."""
    many = len(figure.series)
    high = 14.0 if many == 1 else 8.0
    zero = x.at(0.0 if x.axis.scale == "linear" else x.low)
    parts = []
    for at, (end, middle) in enumerate(places):
        top = middle + (number - (many - 1) / 2) * (high + 1) - high / 2
        left, wide = min(zero, end), abs(end - zero)
        shown = f'<rect class="fill" x="{left:.1f}" y="{top:.1f}" width="{max(wide, 0.5):.1f}" height="{high:g}"/>'
        if series.low:
            low, above = x.at(series.low[at]), top + high / 2
            shown += f'<path class="whisker" d="M{low:.1f} {above:.1f}H{x.at(series.high[at]):.1f}"/>'
        parts.append(f"<g><title>{escape(tooltip(figure, series, at))}</title>{shown}</g>")
    return parts


def _line(series: Series, places: Sequence[tuple[float, float]], colour: int, x: Ruler, y: Ruler) -> list[str]:
    parts = []
    if series.low and len(places) > 1:
        upper = [f"{x.at(a):.1f} {y.at(b):.1f}" for a, b in zip(series.x, series.high)]
        lower = [f"{x.at(a):.1f} {y.at(b):.1f}" for a, b in zip(series.x, series.low)]
        parts.append(f'<path class="band" d="M{"L".join([*upper, *reversed(lower)])}Z"/>')
    path = "L".join(f"{left:.1f} {top:.1f}" for left, top in places)
    dash = _DASHES[colour // HUES % len(_DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    parts.append(f'<path class="curve"{dashed} d="M{path}"><title>{escape(series.name)}</title></path>')
    return parts


def _mark(colour: int, x: float, y: float, r: float) -> str:
    """Circles, squares, diamonds and triangles in turn, so that no colour is alone in telling entries apart."""
    match (colour + colour // HUES) % 4:
        case 0:
            return f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="{r:g}"/>'
        case 1:
            s = r * 0.9
            return f'<path class="mark" d="M{x - s:.1f} {y - s:.1f}h{2 * s:.1f}v{2 * s:.1f}h{-2 * s:.1f}z"/>'
        case 2:
            s = r * 1.25
            return f'<path class="mark" d="M{x:.1f} {y - s:.1f}l{s:.1f} {s:.1f}l{-s:.1f} {s:.1f}l{-s:.1f} {-s:.1f}z"/>'
        case _:
            s = r * 1.15
            return f'<path class="mark" d="M{x:.1f} {y - s:.1f}l{s:.1f} {1.8 * s:.1f}h{-2 * s:.1f}z"/>'


def tooltip(figure: Figure, series: Series, at: int) -> str:
    """What a point says of itself."""
    lines = [series.name]
    for axis, value in ((figure.x, series.x[at]), (figure.y, series.y[at])):
        if axis.scale == "category":
            lines = [f"{axis.categories[round(value)]}, {series.name}"]
    for axis, value in ((figure.x, series.x[at]), (figure.y, series.y[at])):
        if axis.scale != "category":
            lines.append(f"{axis.label}: {FORMATS[axis.unit](value)}")
    if series.low:
        form = FORMATS[(figure.x if figure.kind in ("dots", "bars") else figure.y).unit]
        lines.append(f"from {form(series.low[at])} to {form(series.high[at])}")
    return "\n".join(lines)


def _labels(figure: Figure, frame: Frame, x: Ruler, y: Ruler) -> list[str]:
    """Names beside their points, where there is room for them; the legend has them all."""
    points = [(x.at(s.x[0]), y.at(s.y[0])) for s in figure.series]
    taken = [(a - 6, b - 6, a + 6, b + 6) for a, b in points]
    for series, (a, _) in zip(figure.series, points):
        if series.low:
            taken.append((a - 2, y.at(series.high[0]), a + 2, y.at(series.low[0])))
    parts = []
    for series, (a, b) in zip(figure.series, points):
        wide = text_width(series.name, 11)
        for left, middle in ((a + 9, b), (a - 9 - wide, b), (a - wide / 2, b - 13), (a - wide / 2, b + 13)):
            box = (left, middle - 6, left + wide, middle + 6)
            inside = box[0] > frame.left and box[2] < frame.right and box[1] > frame.top and box[3] < frame.bottom
            if inside and not any(_touch(box, other) for other in taken):
                name = escape(series.name)
                parts.append(f'<text class="name" x="{left:.1f}" y="{middle + 4:.1f}" font-size="11">{name}</text>')
                taken.append(box)
                break
    return parts


def _touch(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _legend(figure: Figure, *, width: float) -> list[list[tuple[float, int, str]]]:
    """Rows of (offset, number of the series, its name), broken where the width ends."""
    if len(figure.series) == 1 and figure.kind in ("dots", "bars"):
        return []
    names = told_apart([series.name for series in figure.series], width - 30)
    wide = max(text_width(name) for name in names) + 42
    columns = max(int(width // wide), 1)
    rows: list[list[tuple[float, int, str]]] = []
    for number, name in enumerate(names):
        if number % columns == 0:
            rows.append([])
        rows[-1].append((number % columns * max(wide, 1), number, name))
    return rows


def _key(figure: Figure, number: int, colours: Mapping[str, int], left: float, top: float, name: str) -> str:
    colour = colour_of(figure.series[number], number, colours)
    dash = _DASHES[colour // HUES % len(_DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    stroke = f'<path class="curve"{dashed} d="M{left:.1f} {top + 7:.1f}h22"/>' if figure.kind == "line" else ""
    return (
        f'<g class="series key c{colour % HUES}" data-series="{number}" data-left="{left:.1f}"'
        f' data-top="{top:.1f}">{stroke}'
        f"{_mark(colour, left + 11, top + 7, 4)}"
        f'<text x="{left + 28:.1f}" y="{top + 11:.1f}">{escape(name)}</text></g>'
    )

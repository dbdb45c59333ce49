"""A figure as SVG. Colours are CSS variables of the page, so the figure follows its theme."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from statewise.figures.figure import FORMATS, Axis, Figure, Series
from statewise.figures.label import FONT, GAP, SMALL, beside, distinguishable, spread, text_width
from statewise.figures.svg_axis import Frame, Ruler, grid, scale, tick_text

HUES = 8  # the page's --c0 … ; curves of one colour differ by dash
_GREY = 7
_DASHES = ("", "7 3", "2 3")
_MARKED = 48  # points of a curve that are marked one by one
_LABELLED = 24  # curves that are named where they end
_LINE = 18.0


def draw(figure: Figure, *, colours: Mapping[str, int], width: int) -> str:
    """One `<svg>` for a width: the text keeps its size, the rest is arranged around it."""
    assert figure.series, figure.name
    narrow = width < 480
    rows = len(figure.y.categories)
    names = _end_names(figure, width)  # of curves, printed where they end
    keys = [] if names or figure.kind == "points" else _legend(figure, width=width - 16)
    texts = [text for series in figure.series for text in series.text if figure.kind == "bars"]
    stacked = narrow and bool(texts)  # names and texts stand above their bars
    widths = [text_width(name, SMALL) + 24 for name in names]
    widths += [text_width(text, SMALL) + 8 for text in texts if not stacked]
    gutter = max(widths, default=0.0)  # for names and texts at the right
    side = min(width - 90.0, 420.0)  # of a plane, whose axes are equal
    each = max(22.0, 9.0 * _abreast(figure) + 8) if figure.kind == "bars" else 22.0
    each = 34.0 if stacked else each
    plot = rows * each + 16 if rows else side - 8 if figure.kind == "plane" else width * (0.72 if narrow else 0.46)
    plot = max(plot, len(names) * GAP + 8)
    y_ticks, y_low, y_high = scale(figure, along="y", most=6)
    left = 14 + FONT * 1.6 + max(text_width(tick_text(figure.y, tick, y_ticks)) for tick in y_ticks)
    left = 10.0 if stacked else min(left, width * 0.42)
    right = left + side if figure.kind == "plane" else width - 14 - gutter
    frame = Frame(left, 10, min(right, width - 14), 10 + plot)
    height = frame.bottom + 48 + len(keys) * _LINE + 4
    x_ticks, x_low, x_high = scale(figure, along="x", most=4 if narrow or frame.right - left < 240 else 7)
    x = Ruler(figure.x, x_low, x_high, frame.left + 4, frame.right - 4)
    if rows:
        y = Ruler(Axis(figure.y.label), -0.6, rows - 0.4, frame.top, frame.bottom)
    else:
        y = Ruler(figure.y, y_low, y_high, frame.bottom, frame.top)
    parts = [
        svg(width, height, title=figure.title, finding=figure.finding),
        *grid(figure, frame, x, y, x_ticks, y_ticks, width),
        f'<clipPath id="clip-{figure.name}-{width}"><path d="M{left:.1f} {frame.top - 6:.1f}H{frame.right + 8:.1f}'
        f'V{frame.bottom:.1f}H{left:.1f}z"/></clipPath><g clip-path="url(#clip-{figure.name}-{width})">'
        if figure.y.limits
        else "<g>",
        *_circle(figure, x, y),
        *_joined(figure, colours, x, y),
        *[
            part
            for at, series in enumerate(figure.series)
            for part in _series(figure, series, at, colours, x, y, stacked=stacked)
        ],
        "</g>",
    ]
    if figure.kind == "points":
        parts += _point_names(figure, colours, frame, x, y)
    if names:
        parts += _curve_names(figure, names, colours, frame, x, y)
    for row, line in enumerate(keys):
        top = frame.bottom + 52 + row * _LINE
        for offset, number, name in line:
            parts.append(_key(figure, number, colours, 8 + offset, top, name))
    return "".join([*parts, "</svg>"])


def svg(width: float, height: float, *, title: str, finding: str) -> str:
    """The opening tag, with a title and a description for screen readers."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' width="{width:.0f}" height="{height:.0f}" class="chart" font-size="{FONT:g}">'
        f"<title>{escape(title)}</title><desc>{escape(finding)}</desc>"
    )


def colour_of(figure: Figure, number: int, colours: Mapping[str, int]) -> int:
    """The colour of its entry; without an entry, its number, or grey beside series with entries."""
    entry = figure.series[number].entry
    if entry is not None:
        return colours[entry]
    return number if all(series.entry is None for series in figure.series) else _GREY


def _group(figure: Figure, number: int, colours: Mapping[str, int], *, kind: str = "") -> str:
    """The opening tag of a series' group, which a page can highlight."""
    series = figure.series[number]
    of = f' data-entry="{escape(series.entry)}"' if series.entry is not None else ""
    return f'<g class="series{kind} c{colour_of(figure, number, colours) % HUES}" data-series="{number}"{of}>'


def _series(
    figure: Figure,
    series: Series,
    number: int,
    colours: Mapping[str, int],
    x: Ruler,
    y: Ruler,
    *,
    stacked: bool = False,
) -> list[str]:
    colour = colour_of(figure, number, colours)
    places = [(x.at(a), y.at(b)) for a, b in zip(series.x, series.y)]
    parts = [_group(figure, number, colours)]
    if figure.kind == "bars":
        return [*parts, *_bars(figure, series, number, places, x, stacked=stacked), "</g>"]
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
    # Too many marks would hide the curves.
    sparse = figure.kind == "line" and (len(figure.series) > HUES or len(places) > _MARKED)
    for at, (left, top) in enumerate(places):
        hidden = sparse and at < len(places) - 1
        seen = "" if hidden else _mark(colour, left, top, radius)
        parts.append(_point(figure, series, at, left, top, seen))
    return [*parts, "</g>"]


def _point(figure: Figure, series: Series, at: int, left: float, top: float, seen: str) -> str:
    """A mark with its position, for the page's script, and its tooltip."""
    return f'<g data-at="{left:.1f} {top:.1f}"><title>{escape(tooltip(figure, series, at))}</title>{seen}</g>'


def _joined(figure: Figure, colours: Mapping[str, int], x: Ruler, y: Ruler) -> list[str]:
    """Lines that connect points of several series, beneath them."""
    known = {series.name: (series, at) for at, series in enumerate(figure.series) if series.x}
    parts = []
    for names in figure.joined:
        chain = [known[name] for name in names if name in known]
        if len(chain) > 1:
            path = "L".join(f"{x.at(series.x[0]):.1f} {y.at(series.y[0]):.1f}" for series, _ in chain)
            colour = colour_of(figure, chain[0][1], colours) % HUES
            parts.append(f'<g class="c{colour}"><path class="leader" d="M{path}"/></g>')
    return parts


def _circle(figure: Figure, x: Ruler, y: Ruler) -> list[str]:
    if figure.circle is None:
        return []
    radius = x.at(figure.circle) - x.at(0.0)
    return [f'<circle class="axis" cx="{x.at(0.0):.1f}" cy="{y.at(0.0):.1f}" r="{radius:.1f}"/>']


def _abreast(figure: Figure) -> int:
    """How many series share a row at most; small marks beside larger ones are not counted."""
    rows = Counter(row for series in figure.series if not series.small for row in set(series.y))
    return max(rows.values(), default=1)


def _bars(
    figure: Figure, series: Series, number: int, places: Sequence[tuple[float, float]], x: Ruler, *, stacked: bool
) -> list[str]:
    """From 0, below one another inside a row; an interval is a line across the end, a text stands after or above it."""
    many = _abreast(figure)
    high = 14.0 if many == 1 else 8.0
    zero = x.at(0.0 if x.axis.scale == "linear" else x.low)
    parts = []
    for at, (end, middle) in enumerate(places):
        shift = 8.0 if stacked else 0.0 if many == 1 else (number - (many - 1) / 2) * (high + 1)
        top = middle + shift - high / 2
        left, wide = min(zero, end), abs(end - zero)
        last = end
        shown = f'<rect class="fill" x="{left:.1f}" y="{top:.1f}" width="{max(wide, 0.5):.1f}" height="{high:g}"/>'
        if series.low:
            low, above = x.at(series.low[at]), top + high / 2
            last = max(end, x.at(series.high[at]))
            shown += f'<path class="whisker" d="M{low:.1f} {above:.1f}H{last:.1f}"/>'
        if series.text:
            name = figure.y.categories[round(series.y[at])]
            text = f"{name}: {series.text[at]}" if stacked else series.text[at]
            place = (zero, top - 5) if stacked else (last + 6, top + high / 2 + 4)
            shown += _name(text, *place)
        parts.append(_point(figure, series, at, end, top + high / 2, shown))
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
    """Circles, squares, diamonds and triangles, so that colour is not the only difference."""
    match colour % HUES % 4:
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


def swatch(colour: int) -> str:
    """A mark of an entry's colour and shape, for a legend outside of a drawing."""
    return f'<svg class="chart" viewBox="0 0 14 14" aria-hidden="true">{_mark(colour, 7, 7, 5)}</svg>'


def tooltip(figure: Figure, series: Series, at: int) -> str:
    """A point's name and values, a line each."""
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


def _point_names(figure: Figure, colours: Mapping[str, int], frame: Frame, x: Ruler, y: Ruler) -> list[str]:
    """Names beside their points, with a leader line where the nearest free place is far."""
    points = [(x.at(series.x[0]), y.at(series.y[0])) for series in figure.series]
    bars = [
        (a - 2, y.at(series.high[0]), a + 2, y.at(series.low[0]))
        for series, (a, _) in zip(figure.series, points)
        if series.low
    ]
    names = [series.text[0] if series.text else series.name for series in figure.series]
    parts = []
    for number, (place, point) in enumerate(zip(beside(points, names, frame=frame, busy=bars), points)):
        if place is None:
            continue
        leads = f'<path class="leader" d="M{point[0]:.1f} {point[1]:.1f}L{place.edge:.1f} {place.middle:.1f}"/>'
        parts.append(
            f"{_group(figure, number, colours, kind=' label')}{leads if place.far else ''}"
            f"{_name(names[number], place.x, place.middle + 4, anchor=place.anchor)}</g>"
        )
    return parts


def _name(text: str, x: float, y: float, *, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{SMALL:g}" text-anchor="{anchor}"'
    return f'<text class="name" {place}>{escape(text)}</text>'


def _end_names(figure: Figure, width: int) -> list[str]:
    """Of curves, if there are several: their names as they are printed at the right edge."""
    if figure.kind != "line" or len(figure.series) < 2 or len(figure.series) > _LABELLED:
        return []
    return distinguishable([series.name for series in figure.series], 0.32 * width - 24, SMALL)


def _curve_names(
    figure: Figure, names: Sequence[str], colours: Mapping[str, int], frame: Frame, x: Ruler, y: Ruler
) -> list[str]:
    """A name per curve, as near to where it ends as the others allow, with a line in its colour leading there."""
    ends = [
        (x.at(series.x[-1]), min(max(y.at(series.y[-1]), frame.top), frame.bottom))
        if series.x
        else (frame.right, frame.bottom)
        for series in figure.series
    ]
    heights = spread([end for _, end in ends], low=frame.top + 2, high=frame.bottom - 2)
    return [
        f"{_group(figure, number, colours, kind=' label')}"
        f'<path class="leader" d="M{end[0]:.1f} {end[1]:.1f}L{frame.right + 6:.1f} {height:.1f}h8"/>'
        f"{_name(name, frame.right + 17, height + 4)}</g>"
        for number, (name, end, height) in enumerate(zip(names, ends, heights))
    ]


def _legend(figure: Figure, *, width: float) -> list[list[tuple[float, int, str]]]:
    """Rows of (offset, number of the series, its name), broken where the width ends.

    Rows that are named at the left need none, and small marks beside larger ones are explained in words.
    """
    shown = [at for at, series in enumerate(figure.series) if not series.small]
    if figure.kind in ("dots", "bars") and (len(shown) < 2 or _abreast(figure) == 1):
        return []
    names = distinguishable([figure.series[at].name for at in shown], width - 30)
    wide = max(text_width(name) for name in names) + 42
    columns = max(int(width // wide), 1)
    rows: list[list[tuple[float, int, str]]] = []
    for place, (number, name) in enumerate(zip(shown, names)):
        if place % columns == 0:
            rows.append([])
        rows[-1].append((place % columns * max(wide, 1), number, name))
    return rows


def _key(figure: Figure, number: int, colours: Mapping[str, int], left: float, top: float, name: str) -> str:
    colour = colour_of(figure, number, colours)
    dash = _DASHES[colour // HUES % len(_DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    stroke = f'<path class="curve"{dashed} d="M{left:.1f} {top + 7:.1f}h22"/>' if figure.kind == "line" else ""
    return (
        f"{_group(figure, number, colours, kind=' key')}{stroke}{_mark(colour, left + 11, top + 7, 4)}"
        f'<text x="{left + 28:.1f}" y="{top + 11:.1f}">{escape(name)}</text></g>'
    )

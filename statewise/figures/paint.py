"""A figure as a PNG file, by matplotlib where it is installed."""

import warnings
from pathlib import Path
from typing import Any

from statewise.figures.drawing import Drawing
from statewise.figures.figure import Figure
from statewise.figures.palette import DEEPENING, DIVERGING
from statewise.figures.passage import Passage, visible
from statewise.specs import UserError

_HUES = ("#0b62b8", "#c2500a", "#08795a", "#8347c0", "#b8215f", "#77680a", "#06748a", "#5b5b66")
_MARKS, _DASHES = ("o", "s", "D", "^"), ("-", (0, (5, 2)), (0, (1, 1.5)))  # as on the page: colours come round again
_COLUMNS = 84  # letters on a line of text
_LABELS = 48  # categories that are all named


def paint(one: Drawing, path: Path) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise UserError(
            "PNG files are drawn with matplotlib, which is not installed", fix="pip install 'statewise[plots]'"
        ) from None
    if isinstance(one, Passage):
        canvas = _text(one, Canvas)
    else:
        canvas = Canvas(figsize=(7.0, 5.0 if one.kind in ("plane", "map") else 4.0), layout="constrained")
        axes = canvas.add_subplot()
        _map(one, canvas, axes) if one.kind == "map" else _axes(one, axes)
        axes.set_title(one.title, fontsize=10)
        axes.set_xlabel(one.x.label)
        axes.set_ylabel(one.y.label)
    FigureCanvasAgg(canvas)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # letters that its font lacks become boxes
        canvas.savefig(path, dpi=150, facecolor="white", format="png")


def _axes(one: Figure, axes: Any) -> None:
    if one.x.scale == "log":
        axes.set_xscale("log", base=one.x.base)
    if one.y.scale == "log":
        axes.set_yscale("log", base=one.y.base)
    many = len(one.series)
    for number, series in enumerate(one.series):
        colour, turn = _HUES[number % len(_HUES)], number // len(_HUES)
        mark = _MARKS[(number + turn) % len(_MARKS)]
        match one.kind:
            case "line":
                dash = _DASHES[turn % len(_DASHES)]
                axes.plot(series.x, series.y, linestyle=dash, color=colour, label=series.name, linewidth=1.5)
                if series.low:
                    axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15, linewidth=0)
            case "bars":
                at = [y + (number - (many - 1) / 2) * 0.8 / many for y in series.y]
                axes.barh(at, series.x, height=0.75 / many, color=colour, label=series.name)
            case "dots":
                axes.plot(series.x, series.y, mark, color=colour, label=series.name)
            case _:
                axes.plot(series.x, series.y, mark, color=colour, markersize=4, label=series.name)
        if series.low and one.kind != "line":
            middle = series.x if one.kind in ("dots", "bars") else series.y
            across = [
                [m - low for m, low in zip(middle, series.low)],
                [high - m for m, high in zip(middle, series.high)],
            ]
            which = {"xerr": across} if one.kind in ("dots", "bars") else {"yerr": across}
            axes.errorbar(series.x, series.y, fmt="none", ecolor=colour, elinewidth=1, **which)
    if one.y.categories:
        axes.set_yticks(range(len(one.y.categories)), [_plain(name) for name in one.y.categories])
        axes.invert_yaxis()
    for axis, limit in ((one.x, axes.set_xlim), (one.y, axes.set_ylim)):
        if axis.limits is not None:
            limit(*axis.limits)
    if one.kind == "plane":
        from matplotlib.patches import Circle

        axes.set_aspect("equal", adjustable="datalim")
        if one.circle is not None:
            axes.add_patch(Circle((0, 0), one.circle, fill=False, color="#5c6670"))
    axes.grid(True, color="#d9dee3", linewidth=0.6)
    axes.set_axisbelow(True)
    if many > 1:
        axes.legend(fontsize=7, frameon=False)


def _map(one: Figure, canvas: Any, axes: Any) -> None:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize

    assert one.grid is not None
    stops = DIVERGING if one.grid.signed else DEEPENING
    palette = LinearSegmentedColormap.from_list("map", [tuple(part / 255 for part in stop) for stop in stops])
    low, high = one.grid.ends()
    values = [[float("nan") if cell is None else cell for cell in row] for row in one.grid.values]
    norm = LogNorm(low, high, clip=True) if one.grid.log else Normalize(low, high)
    rows, columns = len(values), len(values[0])
    extent = None
    if one.grid.x and one.grid.y and not one.x.categories:
        half_x = (one.grid.x[-1] - one.grid.x[0]) / max(columns - 1, 1) / 2 or 0.5
        half_y = (one.grid.y[-1] - one.grid.y[0]) / max(rows - 1, 1) / 2 or 0.5
        extent = (one.grid.x[0] - half_x, one.grid.x[-1] + half_x, one.grid.y[-1] + half_y, one.grid.y[0] - half_y)
    shown = axes.imshow(values, cmap=palette, norm=norm, aspect="auto", interpolation="nearest", extent=extent)
    canvas.colorbar(shown, ax=axes, label=one.grid.label)
    for names, ticks in ((one.x.categories, axes.set_xticks), (one.y.categories, axes.set_yticks)):
        if names:
            every = -(-len(names) // _LABELS)
            turned = {"rotation": 90} if ticks == axes.set_xticks else {}
            ticks(range(0, len(names), every), [_plain(name) for name in names[::every]], fontsize=7, **turned)


def _text(one: Passage, canvas_type: Any) -> Any:
    """Letters of fixed pitch on their colours."""
    places, row, column = [], 0, 0
    for (piece, _), level in zip(one.pieces, one.levels()):
        for letter in visible(piece):
            if column >= _COLUMNS:
                row, column = row + 1, 0
            places.append((row, column, letter, level))
            column += 1
            if letter == "⏎":
                row, column = row + 1, 0
    from matplotlib.patches import Rectangle

    canvas = canvas_type(figsize=(7.5, 0.6 + 0.19 * (row + 1)))
    axes = canvas.add_axes((0.02, 0.02, 0.96, 0.9))
    axes.set_xlim(0, _COLUMNS)
    axes.set_ylim(row + 1, 0)
    axes.axis("off")
    axes.set_title(one.title, fontsize=9)
    for line, at, letter, level in places:
        if level:
            shade = _HUES[0] if level < 0 else "#e8590c"
            axes.add_patch(Rectangle((at, line), 1, 0.92, color=shade, alpha=min(abs(level) * 0.1, 0.9), linewidth=0))
        if letter.strip():
            axes.text(at + 0.5, line + 0.7, _plain(letter), fontsize=7, family="monospace", ha="center")
    return canvas


def _plain(text: str) -> str:
    """Signs that matplotlib's own letters have: a line end is not among them, and $ would begin mathematics."""
    return visible(text).replace("⏎", "¶").replace("⇥", "→").replace("$", r"\$")

"""A figure as a PNG or PDF file, by matplotlib where it is installed, with the fonts that its letters need."""

import warnings
from functools import cache
from pathlib import Path
from typing import Any

from statewise.disk import replacing
from statewise.display import visible
from statewise.figures.drawing import Drawing, hues
from statewise.figures.figure import Figure
from statewise.figures.passage import Passage
from statewise.figures.svg_map import DEEPENING, DIVERGING
from statewise.figures.typeset import typeset, words
from statewise.specs import optional

_MARKS, _DASHES = ("o", "s", "D", "^"), ("-", (0, (5, 2)), (0, (1, 1.5)))  # as on the page, where colours repeat
_COLUMNS = 84  # letters on a line of text
_SIZE = 9.5  # points, as wide as a place
_LABELS = 48  # categories that are all named
_MONO, _SANS = "DejaVu Sans Mono", "DejaVu Sans"  # come with matplotlib
_JOINS = (3, 11)  # matplotlib shapes text from this version on


def paint(drawing: Drawing, path: Path) -> None:
    optional("matplotlib", extra="plots", needed_by=f"{path.suffix} files")
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    kind = _MONO if isinstance(drawing, Passage) else _SANS
    with rc_context({"font.family": [kind, *fallbacks(letters(drawing), kind)]}), warnings.catch_warnings():
        # Letters that no installed font has become boxes; `missing_glyphs` names them.
        warnings.filterwarnings("ignore", message="Glyph")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        if isinstance(drawing, Passage):
            canvas = _text(drawing, Canvas)
        else:
            canvas = Canvas(figsize=(7.0, 5.0 if drawing.kind in ("plane", "map") else 4.0), layout="constrained")
            axes = canvas.add_subplot()
            _map(drawing, canvas, axes) if drawing.kind == "map" else _axes(drawing, axes)
            axes.set_title(_plain(drawing.title), fontsize=10)
            axes.set_xlabel(_plain(drawing.x.label))
            axes.set_ylabel(_plain(drawing.y.label))
        FigureCanvasAgg(canvas)
        with replacing(path) as temporary:
            canvas.savefig(temporary, dpi=150, facecolor="white", format=path.suffix[1:])


def missing_glyphs(drawing: Drawing) -> set[str]:
    """Letters of a figure that no installed font has: they become boxes."""
    return without_font(letters(drawing), _MONO if isinstance(drawing, Passage) else _SANS)


def letters(drawing: Drawing) -> str:
    """All text of a figure."""
    if isinstance(drawing, Passage):
        parts = [drawing.title, *(piece for piece, _ in drawing.pieces)]
    else:
        parts = [drawing.title, drawing.x.label, drawing.y.label, *drawing.x.categories, *drawing.y.categories]
        parts += [*(series.name for series in drawing.series), drawing.grid.label if drawing.grid else ""]
    return _plain("".join(parts))


def _axes(figure: Figure, axes: Any) -> None:
    if figure.x.scale == "log":
        axes.set_xscale("log", base=figure.x.base)
    if figure.y.scale == "log":
        axes.set_yscale("log", base=figure.y.base)
    many, colours = len(figure.series), hues()
    for number, series in enumerate(figure.series):
        colour, turn = colours[number % len(colours)], number // len(colours)
        mark = _MARKS[(number + turn) % len(_MARKS)]
        match figure.kind:
            case "line":
                dash = _DASHES[turn % len(_DASHES)]
                axes.plot(series.x, series.y, linestyle=dash, color=colour, label=_plain(series.name), linewidth=1.5)
                if series.low:
                    axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15, linewidth=0)
            case "bars":
                at = [y + (number - (many - 1) / 2) * 0.8 / many for y in series.y]
                axes.barh(at, series.x, height=0.75 / many, color=colour, label=_plain(series.name))
            case "dots":
                axes.plot(series.x, series.y, mark, color=colour, label=_plain(series.name))
            case _:
                axes.plot(series.x, series.y, mark, color=colour, markersize=4, label=_plain(series.name))
        if series.low and figure.kind != "line":
            middle = series.x if figure.kind in ("dots", "bars") else series.y
            across = [
                [m - low for m, low in zip(middle, series.low)],
                [high - m for m, high in zip(middle, series.high)],
            ]
            which = {"xerr": across} if figure.kind in ("dots", "bars") else {"yerr": across}
            axes.errorbar(series.x, series.y, fmt="none", ecolor=colour, elinewidth=1, **which)
    if figure.y.categories:
        axes.set_yticks(range(len(figure.y.categories)), [_plain(name) for name in figure.y.categories])
        axes.invert_yaxis()
    for axis, limit in ((figure.x, axes.set_xlim), (figure.y, axes.set_ylim)):
        if axis.limits is not None:
            limit(*axis.limits)
    if figure.kind == "plane":
        from matplotlib.patches import Circle

        axes.set_aspect("equal", adjustable="datalim")
        if figure.circle is not None:
            axes.add_patch(Circle((0, 0), figure.circle, fill=False, color="#5c6670"))
    axes.grid(True, color="#d9dee3", linewidth=0.6)
    axes.set_axisbelow(True)
    if many > 1:
        axes.legend(fontsize=7, frameon=False)


def _map(figure: Figure, canvas: Any, axes: Any) -> None:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize

    assert figure.grid is not None
    stops = DIVERGING if figure.grid.signed else DEEPENING
    palette = LinearSegmentedColormap.from_list("map", [tuple(part / 255 for part in stop) for stop in stops])
    low, high = figure.grid.ends()
    values = [[float("nan") if cell is None else cell for cell in row] for row in figure.grid.values]
    norm = LogNorm(low, high, clip=True) if figure.grid.log else Normalize(low, high)
    rows, columns = len(values), len(values[0])
    extent = None
    if figure.grid.x and figure.grid.y and not figure.x.categories:
        half_x = (figure.grid.x[-1] - figure.grid.x[0]) / max(columns - 1, 1) / 2 or 0.5
        half_y = (figure.grid.y[-1] - figure.grid.y[0]) / max(rows - 1, 1) / 2 or 0.5
        extent = (
            figure.grid.x[0] - half_x,
            figure.grid.x[-1] + half_x,
            figure.grid.y[-1] + half_y,
            figure.grid.y[0] - half_y,
        )
    shown = axes.imshow(values, cmap=palette, norm=norm, aspect="auto", interpolation="nearest", extent=extent)
    canvas.colorbar(shown, ax=axes, label=_plain(figure.grid.label))
    for names, ticks in ((figure.x.categories, axes.set_xticks), (figure.y.categories, axes.set_yticks)):
        if names:
            every = -(-len(names) // _LABELS)
            turned = {"rotation": 90} if ticks == axes.set_xticks else {}
            ticks(range(0, len(names), every), [_plain(name) for name in names[::every]], fontsize=7, **turned)


def _text(passage: Passage, canvas_type: Any) -> Any:
    """Letters of fixed pitch on their colours."""
    from matplotlib import __version_info__ as version
    from matplotlib.patches import Rectangle

    spots = typeset([piece for piece, _ in passage.pieces], room=_COLUMNS)
    rows = max((spot.row for spot in spots), default=0) + 1
    canvas = canvas_type(figsize=(7.5, 0.6 + 0.19 * rows))
    axes = canvas.add_axes((0.02, 0.02, 0.96, 0.9))
    axes.set_xlim(0, _COLUMNS)
    axes.set_ylim(rows, 0)
    axes.axis("off")
    axes.set_title(_plain(passage.title), fontsize=9)
    levels, lacking = passage.levels(), missing_glyphs(passage)
    for spot in spots:
        level = max((levels[at] for at in spot.pieces), key=abs)
        if level:
            shade, deep = hues()[0] if level < 0 else "#e8590c", min(abs(level) * 0.1, 0.9)
            place = (spot.column, spot.row)
            axes.add_patch(
                Rectangle(place, spot.wide, 0.92, color=shade, alpha=deep, linewidth=0, antialiased=False)  # no seams
            )
    joins = version >= _JOINS  # older versions draw every Arabic letter by itself, from the left
    for spot in spots:
        if spot.text.strip() and not (joins and spot.turned):
            middle = spot.column + spot.wide / 2
            text = "▯" if lacking.intersection(spot.text) else _plain(spot.alone)
            axes.text(middle, spot.row + 0.7, text, fontsize=_SIZE, ha="center")
    for word in words(spots) if joins else []:
        if word.turned and word.text.strip():
            middle = word.column + word.wide / 2
            axes.text(middle, word.row + 0.7, _plain(word.text), fontsize=_SIZE, ha="center")
    return canvas


def _plain(text: str) -> str:
    """Replace signs that matplotlib's font lacks; $ would begin mathematics."""
    return visible(text).replace("⏎", "¶").replace("⇥", "→").replace("$", r"\$")


_FAMILIAR = ("Noto Sans", "Noto", "Arial Unicode", "PingFang", "Hiragino", "Microsoft", "WenQuanYi", "Source Han")


def fallbacks(text: str, own: str) -> list[str]:
    """As few font families as have the letters that `own` lacks."""
    lacking = _lacking(text, own)
    families = []
    for name, path in _installed() if lacking else ():
        if new := lacking & _glyphs(path):
            families.append(name)
            lacking -= new
        if not lacking:
            break
    return families


def without_font(text: str, own: str) -> set[str]:
    """Letters that no installed font has."""
    lacking = _lacking(text, own)
    for _, path in _installed() if lacking else ():
        lacking -= _glyphs(path)
    return {chr(code) for code in lacking}


def _lacking(text: str, own: str) -> set[int]:
    from matplotlib.font_manager import findfont

    return {ord(character) for character in set(text) if not character.isascii()} - _glyphs(findfont(own))


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    """Upright fonts of normal weight; those for many scripts first."""
    from matplotlib.font_manager import fontManager

    plain = {
        (font.name, font.fname)
        for font in fontManager.ttflist
        if font.style == "normal"
        and font.weight == 400
        and not font.name.startswith("Last Resort")  # it has boxes for all letters
    }

    def rank(font: tuple[str, str]) -> tuple[int, str]:
        return next((at for at, name in enumerate(_FAMILIAR) if font[0].startswith(name)), len(_FAMILIAR)), font[0]

    return tuple(sorted(plain, key=rank))


@cache
def _glyphs(path: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    font = FT2Font(path)
    # Bitmap fonts, such as coloured emoji, cannot be drawn.
    return frozenset(font.get_charmap()) if font.scalable else frozenset()

"""Any drawing as SVG: inside a page, or as a file of its own."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources
from itertools import groupby
from typing import TypeAlias

from statewise.display import visible
from statewise.figures import svg
from statewise.figures.figure import Figure
from statewise.figures.passage import Passage
from statewise.figures.svg_map import draw_map
from statewise.figures.typeset import Spot, Word, typeset, words

Drawing: TypeAlias = Figure | Passage

_CHARACTER, _LINE = 7.3, 19.0  # pixels of the fixed pitch that a text is drawn with
_ILLEGAL = re.compile(r"[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")  # not allowed in XML
_HEAT, _COOL = "#e8590c", "#0b62b8"


def draw(drawing: Drawing, *, colours: Mapping[str, int] | None = None, width: int = 640) -> str:
    """One `<svg>`, drawn for a width. `colours` numbers the entries that series belong to."""
    assert drawing.drawable, drawing.name
    if isinstance(drawing, Passage):
        drawn = draw_passage(drawing, width=width)
    elif drawing.kind == "map":
        drawn = draw_map(drawing, width=width)
    else:
        drawn = svg.draw(drawing, colours=colours or {}, width=width)
    return _ILLEGAL.sub(lambda match: visible(match[0]), drawn)


def draw_passage(passage: Passage, *, width: int) -> str:
    """Lines of fixed pitch; the colour of a piece is behind its letters, in either direction."""
    room = int((width - 16) // _CHARACTER)
    spots = typeset([piece for piece, _ in passage.pieces], room=room)
    height = 16 + (max((spot.row for spot in spots), default=0) + 1) * _LINE
    shades = "".join(_shades(passage, spots))
    written = "".join(_written(word) for word in words(spots) if word.text.strip())
    return svg.svg(width, height, title=passage.title, finding=passage.finding) + shades + written + "</svg>"


def _written(word: Word) -> str:
    """Letters are fitted to their places, whatever the font, so that the colours stay in line."""
    left, wide, down = 8 + word.column * _CHARACTER, word.wide * _CHARACTER, f'y="{21 + word.row * _LINE:.1f}"'
    if word.turned:
        place = (
            f'x="{left + wide:.1f}" {down} direction="rtl" unicode-bidi="bidi-override" textLength="{wide:.1f}"'
            ' lengthAdjust="spacingAndGlyphs"'
        )
    elif word.narrow:
        place = f'x="{left:.1f}" {down} textLength="{wide:.1f}" lengthAdjust="spacing"'
    else:
        place = f'x="{left + wide / 2:.1f}" {down} text-anchor="middle"'
    return f'<text class="piece" xml:space="preserve" {place}>{escape(word.text)}</text>'


def _shades(passage: Passage, spots: Sequence[Spot]) -> Iterator[str]:
    """One rectangle for neighbours of one piece. Of several pieces in one letter the darkest is drawn."""
    levels = passage.levels()
    for (row, pieces), some in groupby(spots, key=lambda spot: (spot.row, spot.pieces)):
        together = list(some)
        level = max((levels[at] for at in pieces), key=abs)
        if not level:
            continue
        wide = sum(spot.wide for spot in together)
        said = "\n".join(passage.said(at) for at in pieces)
        yield (
            f'<rect x="{8 + together[0].column * _CHARACTER:.1f}" y="{8 + row * _LINE:.1f}"'
            f' width="{wide * _CHARACTER:.1f}" height="{_LINE - 2:g}" fill="{_HEAT if level > 0 else _COOL}"'
            f' fill-opacity="{min(abs(level) * 0.1, 0.9):.1f}"><title>{escape(said)}</title></rect>'
        )


_VARIABLE = re.compile(r"(--[\w-]+):\s*([^;}]+)")
_RULE = re.compile(r"(\.chart[^{}]*)\{([^{}]*)\}")


def svg_file(drawing: Drawing, *, colours: Mapping[str, int] | None = None, width: int = 640) -> str:
    """The drawing in the light colours of a page, without CSS variables, which many programs do not support."""
    return standalone(draw(drawing, colours=colours, width=width))


def standalone(drawn: str) -> str:
    """An `<svg>` of a page as a file of its own."""
    opening, rest = drawn.split(">", 1)
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'{opening} font-family="sans-serif"><style>{_rules()}</style>{paper}{rest}\n'


def hues() -> list[str]:
    """The page's eight colours on white."""
    return [value for name, value in sorted(_light().items()) if re.fullmatch(r"--c\d", name)]


def _light() -> dict[str, str]:
    css = _css()
    return dict(_VARIABLE.findall(css[: css.index("@media")]))


@cache
def _css() -> str:
    return resources.files("statewise.figures").joinpath("style.css").read_text(encoding="utf-8")


@cache
def _rules() -> str:
    css, light = _css(), _light()
    rules = []
    for selector, body in _RULE.findall(css):
        short = selector.replace(".chart ", "").strip()
        if not short or short.startswith((".chart", ".lit")):
            continue  # for pages only
        if "var(--c)" in body:
            rules += [f".c{at} {short}{{{body.replace('var(--c)', hue)}}}" for at, hue in enumerate(hues())]
        else:
            rules.append(f"{short}{{{body}}}")
    text = "\n".join(rules)
    for name, value in light.items():
        text = text.replace(f"var({name})", value)
    return text

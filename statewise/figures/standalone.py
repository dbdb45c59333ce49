"""A picture without a page around it: an SVG file whose colours are its own, or a PNG by matplotlib."""

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

from statewise.figures.drawing import Drawing, draw

_VARIABLE = re.compile(r"(--[\w-]+):\s*([^;}]+)")
_RULE = re.compile(r"(\.chart[^{}]*)\{([^{}]*)\}")


def svg_file(one: Drawing, *, colours: Mapping[str, int] | None = None, width: int = 640) -> str:
    """The drawing in the light colours of a page, written out for programs that know no CSS variables."""
    drawn = draw(one, colours=colours, width=width)
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
            continue  # of the page alone
        if "var(--c)" in body:
            rules += [f".c{at} {short}{{{body.replace('var(--c)', hue)}}}" for at, hue in enumerate(hues())]
        else:
            rules.append(f"{short}{{{body}}}")
    text = "\n".join(rules)
    for name, value in light.items():
        text = text.replace(f"var({name})", value)
    return text

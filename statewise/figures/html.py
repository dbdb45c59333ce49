"""A self-contained page: no network, no other file.

Only the script's hash is allowed to run, so text from data could not run even if it were not escaped.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import NamedTuple
from urllib.parse import quote

from statewise.display import alone, visible, whole_letters
from statewise.figures.drawing import Drawing, draw
from statewise.figures.passage import Passage
from statewise.figures.table import Column, Table

_WIDE, _NARROW = 640, 340  # pixels that a drawing is made for
_LONG = 24  # rows of a table that are shown at once


class Frame(NamedTuple):
    """A page inside a page, as an `iframe`, and what its Content-Security-Policy lets run."""

    element: str
    sources: tuple[str, ...]


def page(*, title: str, body: str, description: str = "", static: bool = False, frames: Sequence[Frame] = ()) -> str:
    """The whole document around a body made of the parts below. `static`: without scripts, pictures only.

    `frames` are those in the body: what may run in them has to be allowed here, too.
    """
    script = "" if static else part("script.js")
    inside = dict.fromkeys(source for frame in frames for source in frame.sources)
    policy = "; ".join(
        [
            "default-src 'none'",
            "img-src data: blob:",
            "style-src 'unsafe-inline'",
            *([f"script-src {' '.join([source_hash(script), *inside])}"] if script else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    about = f"{title} · statewise"
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="generator" content="statewise">',
        f'<meta property="og:title" content="{escape(about)}">',
        '<meta property="og:type" content="article">',
        *(
            [
                f'<meta name="description" content="{escape(description)}">',
                f'<meta property="og:description" content="{escape(description)}">',
            ]
            if description
            else []
        ),
        '<link rel="icon" href="data:,">',
        f"<title>{escape(about)}</title>",
        f"<style>\n{part('style.css')}</style>",
    ]
    joined = "\n".join(head)
    end = f"\n<script>{script}</script>" if script else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{joined}\n</head>\n'
        f"<body>\n<main>\n{body}\n</main>{end}\n</body>\n</html>\n"
    )


# -------------------------------------------------------------------- tables


def table(content: Table, *, sortable: bool = False) -> str:
    content = content.for_people()
    head = "".join(_head(column, sortable) for column in content.columns)
    rows = []
    for number, row in enumerate(content.rows):
        cells = []
        for column, cell in zip(content.columns, row):
            wraps = "wrap" if column.text and len(cell.text) > 24 else ""
            kind = _class("text" * column.text, wraps, "minor" * column.minor)
            value = "" if cell.value is None else escape(str(cell.value))
            sort = f' data-value="{value}"' if sortable else ""
            text = escape(cell.text).replace("_", "_<wbr>") if column.text else escape(cell.text)
            cells.append(f"<td{kind}{sort}>{text}</td>")
        best = ' class="best"' if number == content.best else ""
        rows.append(f"<tr{best}>{''.join(cells)}</tr>")
    sorts = " data-sortable" if sortable else ""
    return (
        f'<div class="scroll" tabindex="0"><table{sorts}><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def folded(content: Table, *, sortable: bool = False) -> str:
    """A table; with many rows it is folded. Only a page can sort it."""
    shown, rows = table(content, sortable=sortable), len(content.rows)
    return shown if rows <= _LONG else f"<details><summary>All {rows:,} rows</summary>{shown}</details>"


def _head(column: Column, sortable: bool) -> str:
    kind = _class("text" * column.text, "minor" * column.minor)
    title = f"<button>{escape(column.title)}</button>" if sortable else escape(column.title)
    unit = f" <small>{escape(column.unit)}</small>" if column.unit else ""  # a notebook has no stylesheet
    return f'<th scope="col"{kind}>{title}{unit}</th>'


def _class(*names: str) -> str:
    return f' class="{" ".join(filter(None, names))}"' if any(names) else ""


def table_export(name: str, content: Table) -> str:
    return f'<div class="export">{_csv_link(name, content.csv())}</div>'


def _csv_link(name: str, text: str) -> str:
    # Without a byte order mark, spreadsheets assume a local encoding.
    marked = text if text.isascii() else f"\ufeff{text}"
    return f'<a download="{escape(name)}.csv" href="data:text/csv;charset=utf-8,{quote(marked)}">CSV</a>'


# -------------------------------------------------------------------- figures


def figures(some: Sequence[Drawing], colours: Mapping[str, int] | None = None) -> str:
    return f'<div class="figures">{"".join(figure(figure_, colours) for figure_ in some)}</div>'


def figure(drawing: Drawing, colours: Mapping[str, int] | None = None) -> str:
    """A figure with its title, finding, how to read it, and exports."""
    drawn, wide = "", ""
    if drawing.drawable and isinstance(drawing, Passage):
        wide = ' class="text"'
        saved = f'<div class="drawn" hidden>{draw(drawing, width=_WIDE)}</div>'
        drawn = f"{_scale(drawing)}{_pieces(drawing)}{saved}{_exports(drawing)}"
    elif drawing.drawable:
        still, narrow = (draw(drawing, colours=colours, width=width) for width in (_WIDE, _NARROW))
        drawn = f'<div class="still"><div class="wide">{still}</div><div class="narrow">{narrow}</div></div>'
        drawn += _exports(drawing)
    notes = "".join(f'<p class="note">{escape(said)}</p>' for said in drawing.missing)
    return (
        f'<figure id="{escape(drawing.name)}"{wide}><h3>{escape(drawing.title)}</h3><figcaption>'
        f'<p class="finding">{escape(drawing.finding)}</p><p class="reading">{escape(drawing.reading)}</p></figcaption>'
        f"{drawn}{notes}</figure>"
    )


def _exports(drawing: Drawing) -> str:
    name = escape(drawing.name)
    return (
        f'<div class="export">{_csv_link(drawing.name, drawing.csv())}'
        f'<button data-save="svg" data-name="{name}">SVG</button>'
        f'<button data-save="png" data-name="{name}">PNG</button></div>'
    )


def _pieces(passage: Passage) -> str:
    """A piece that adds no letter to the one before it is merged with it, in the darker colour."""
    shown, levels = [], passage.levels()
    for some in whole_letters([piece for piece, _ in passage.pieces]):
        level = max((levels[at] for at in some), key=abs)
        kind = f"h{level}" if level >= 0 else f"h{-level} cool"
        said = [
            passage.said(at) if len(some) == 1 else f"{alone(passage.pieces[at][0])}: {passage.said(at)}" for at in some
        ]
        text = "".join(passage.pieces[at][0] for at in some)
        shown.append(f'<i class="{kind}" title="{attribute(chr(10).join(said))}">{broken(text)}</i>')
    return f'<p class="pieces heat">{"".join(shown)}</p>'


def broken(piece: str) -> str:
    """Coloured text: the end of a line is visible, and ends the line."""
    return escape(visible(piece)).replace("⏎", "⏎\n")


def attribute(text: str) -> str:
    """Lines stay; characters that HTML does not allow are shown as signs."""
    return "\n".join(escape(visible(line)) for line in text.split("\n"))


def _scale(passage: Passage) -> str:
    steps = passage.steps
    bounds = [0.0, *steps]
    words = [f"{low:.3g}–{high:.3g}" for low, high in zip(bounds, steps)]
    words.append(f"over {steps[-1]:.3g}")
    deep = [f'<i class="heat h{at}">{word}</i>' for at, word in enumerate(words)]
    if passage.signed:
        deep = [f'<i class="heat h{at} cool">−{word}</i>' for at, word in enumerate(words)][:0:-1] + deep
    return f'<div class="scale heat"><span>{escape(passage.label)}:</span>{"".join(deep)}</div>'


# -------------------------------------------------------------------- the rest


def missing(said: Sequence[str], title: str = "Missing") -> str:
    if not said:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in said)
    return f'<div class="missing" role="note">{title}:<ul>{items}</ul></div>'


def part(name: str) -> str:
    """The stylesheet or the script of a page."""
    return resources.files("statewise.figures").joinpath(name).read_text(encoding="utf-8")


def source_hash(script: str) -> str:
    """By which a Content-Security-Policy allows a script or a stylesheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"

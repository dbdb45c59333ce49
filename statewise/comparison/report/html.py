"""The report as one page that needs nothing beside it: no network, no other file.

Scripts are allowed by their hash alone, so nothing that comes from data could run even if it were not escaped.
"""

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from html import escape
from importlib import resources
from importlib.util import find_spec
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from statewise.comparison.report.content import Content, Section
from statewise.comparison.report.figure import Figure
from statewise.comparison.report.number import plain
from statewise.comparison.report.surprise import LEVELS, Surprised, level
from statewise.comparison.report.svg import draw, scale, tick_text
from statewise.comparison.report.table import Column, Table

_WIDE, _NARROW = 640, 340  # pixels that a drawing is made for


def page(content: Content, *, static: bool = False) -> str:
    """`static`, or no plotly installed: drawings only."""
    scripts = [_part("script.js")]
    data = ""
    if not static and find_spec("plotly") is not None:
        scripts = [
            resources.files("plotly").joinpath("package_data/plotly.min.js").read_text(encoding="utf-8"),
            *scripts,
        ]
        scripts.append(_part("interactive.js"))
        data = f'<script type="application/json" id="figures">{_json(_figures(content))}</script>'
    policy = "; ".join(
        [
            "default-src 'none'",
            "img-src data: blob:",
            "style-src 'unsafe-inline'",
            f"script-src {' '.join(map(_hash, scripts))}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    body = "\n".join(_body(content))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(content.title)}</title>\n<style>\n{_part('style.css')}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n{data}\n"
        + "\n".join(f"<script>{script}</script>" for script in scripts)
        + "\n</body>\n</html>\n"
    )


def _body(content: Content) -> list[str]:
    sections = _sections(content)
    links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title, _ in sections)
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in content.verdict)
    parts = [
        f"<header><h1>{escape(content.title)}</h1>",
        f'<p class="question">{escape(content.question)}</p>',
        f'<div class="verdict" role="note">{sentences}</div>',
        _missing(content.missing, "Missing in this report"),
        f"<nav>{links}</nav></header>",
    ]
    for name, title, inside in sections:
        parts.append(f'<section id="{name}"><h2>{escape(title)}</h2>\n{inside}\n</section>')
    return [part for part in parts if part]


def _sections(content: Content) -> list[tuple[str, str, str]]:
    colours = {name: at for at, name in enumerate(content.order)}
    note = f'<p class="note">Groups: {escape(content.method)}. A column is sorted by its title.</p>'
    found = [("entries", "The entries", table(content.table, sortable=True) + note + _table_export(content.table))]
    found += [(one.name, one.title, _figures_of(one, colours)) for one in content.sections]
    if content.samples or content.readings or content.missing_text:
        found.append(("samples", "Samples and surprise", _samples(content)))
    if content.disagreements:
        found.append(("disagreement", "Where the models disagree", _disagreements(content)))
    searched = f"<p>{escape(content.searched)}</p>"
    found.append(("search", "The search", searched + (table(content.search) if content.search else "")))
    found.append(("run", "What was run", _run(content)))
    return found


# -------------------------------------------------------------------- tables


def table(one: Table, *, sortable: bool = False) -> str:
    one = one.for_people()
    head = "".join(_head(column, sortable) for column in one.columns)
    rows = []
    for number, row in enumerate(one.rows):
        cells = []
        for column, cell in zip(one.columns, row):
            wraps = " wrap" if column.text and len(cell.text) > 24 else ""
            kind = f' class="text{wraps}"' if column.text else ""
            value = "" if cell.value is None else escape(str(cell.value))
            sort = f' data-value="{value}"' if sortable else ""
            cells.append(f"<td{kind}{sort}>{escape(cell.text)}</td>")
        best = ' class="best"' if number == one.best else ""
        rows.append(f"<tr{best}>{''.join(cells)}</tr>")
    sorts = " data-sortable" if sortable else ""
    return (
        f'<div class="scroll" tabindex="0"><table{sorts}><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _head(column: Column, sortable: bool) -> str:
    kind = ' class="text"' if column.text else ""
    title = f"<button>{escape(column.title)}</button>" if sortable else escape(column.title)
    unit = f"<small>{escape(column.unit)}</small>" if column.unit else ""
    return f'<th scope="col"{kind}>{title}{unit}</th>'


def _table_export(one: Table) -> str:
    return f'<div class="export">{_csv_link("entries", one.csv())}</div>'


def _csv_link(name: str, text: str) -> str:
    return f'<a download="{escape(name)}.csv" href="data:text/csv;charset=utf-8,{quote(text)}">CSV</a>'


# -------------------------------------------------------------------- figures


def _figures_of(section: Section, colours: dict[str, int]) -> str:
    return f'<div class="figures">{"".join(_figure(one, colours) for one in section.figures)}</div>'


def _figure(figure: Figure, colours: dict[str, int]) -> str:
    drawn = ""
    if figure.series:
        wide, narrow = (draw(figure, colours=colours, width=width) for width in (_WIDE, _NARROW))
        drawn = (
            f'<div class="still"><div class="wide">{wide}</div><div class="narrow">{narrow}</div></div>'
            f'<div class="live" data-figure="{figure.name}"></div><div class="export">'
            f"{_csv_link(figure.name, figure.csv())}"
            f'<button data-save="svg" data-name="{figure.name}">SVG</button>'
            f'<button data-save="png" data-name="{figure.name}">PNG</button></div>'
        )
    notes = "".join(f'<p class="note">{escape(one)}</p>' for one in figure.missing)
    return (
        f'<figure id="{figure.name}"><h3>{escape(figure.title)}</h3><figcaption>'
        f'<p class="finding">{escape(figure.finding)}</p><p class="reading">{escape(figure.reading)}</p></figcaption>'
        f"{drawn}{notes}</figure>"
    )


def _figures(content: Content) -> dict[str, Any]:
    colours = {name: at for at, name in enumerate(content.order)}
    figures = [{**one.as_dict(), "ticks": _ticks(one)} for one in content.figures if one.series]
    return {"figures": figures, "colours": colours}


def _ticks(figure: Figure) -> dict[str, Any]:
    """The drawings' own ticks and ends, for a wide and for a narrow place."""
    found = {}
    for along, axis in (("x", figure.x), ("y", figure.y)):
        for place, most in (("wide", 7), ("narrow", 4)) if along == "x" else (("wide", 6), ("narrow", 6)):
            values, low, high = scale(figure, along=along, most=most)
            texts = [tick_text(axis, value, values) for value in values]
            found[f"{along}-{place}"] = {"values": values, "texts": texts, "low": low, "high": high}
    return found


# -------------------------------------------------------------------- text


def _samples(content: Content) -> str:
    parts = []
    if content.samples:
        cards = "".join(
            f'<div class="card"><h3>{escape(one.entry)} <small class="note">seed {one.seed}</small></h3>'
            f'<pre tabindex="0">{escape(one.text)}</pre></div>'
            for one in content.samples
        )
        parts.append(f'<p>What each entry writes, from the same beginning.</p><div class="cards">{cards}</div>')
    if content.readings:
        best = min(content.readings, key=lambda one: one.total)
        parts.append(
            "<h3 style='margin-top:1.6rem'>The same held-out text, as each entry read it</h3>"
            "<p>The deeper the colour, the more bits a piece cost: the less it was expected. The mean over seeds. "
            f"{escape(best.entry)} paid least, {plain(best.per_character())} bits per character.</p>{_legend()}"
            f'<div class="cards">{"".join(map(_reading, content.readings))}</div>'
        )
    return "".join(parts) + _missing(content.missing_text)


def _legend() -> str:
    bounds = [0.0, *LEVELS, math.inf]
    steps = [
        f'<i class="heat h{at}">{f"{low:g}–{high:g}" if high < math.inf else f"over {low:g}"}</i>'
        for at, (low, high) in enumerate(pairwise(bounds))
    ]
    return f'<div class="scale heat"><span>bits:</span>{"".join(steps)}</div>'


def _reading(one: Surprised) -> str:
    pieces = "".join(
        f'<i class="h{level(bits)}" title="{plain(bits)} bits">{escape(piece)}</i>' for piece, bits in one.pieces
    )
    return (
        f'<div class="card"><h3>{escape(one.entry)} <small class="note">{plain(one.per_character())} bits per '
        f'character</small></h3><p class="pieces heat">{pieces}</p></div>'
    )


def _disagreements(content: Content) -> str:
    rows = []
    for one in content.disagreements:
        least, most = (plain(one.bits[name]) for name in (one.expected_by, one.surprised))
        every = ", ".join(f"{name} {plain(bits)}" for name, bits in sorted(one.bits.items(), key=lambda item: item[1]))
        rows.append(
            f'<tr><td class="text wrap"><code>{_visible(one.before)}<mark>{_visible(one.piece)}</mark>'
            f"{_visible(one.after)}</code></td>"
            f'<td class="text">{escape(one.expected_by)} <span class="note">{least}</span></td>'
            f'<td class="text">{escape(one.surprised)} <span class="note">{most}</span></td>'
            f'<td title="{escape(every)}">{plain(one.gap)}</td></tr>'
        )
    heads = [
        ("the piece, in its place", "text"),
        ("expected by (bits)", "text"),
        ("surprised (bits)", "text"),
        ("gap (bits)", ""),
    ]
    head = "".join(f'<th scope="col" class="{kind}">{title}</th>' for title, kind in heads)
    return (
        f"<p>{escape(content.disagreement)} A row is a piece of the held-out text; those with the largest difference "
        'between two entries come first.</p><div class="scroll" tabindex="0"><table class="places"><thead>'
        f"<tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _visible(text: str) -> str:
    return escape(text.replace("\n", "⏎").replace("\t", "⇥"))


# -------------------------------------------------------------------- the rest


def _run(content: Content) -> str:
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in content.facts)
    failures = f"<h3>Trials that failed</h3>{table(content.failures)}" if content.failures else ""
    trials = f"<details><summary>Every trial, with its folder and weights</summary>{table(content.trials)}</details>"
    return (
        "<p>This command gives the same figures again (times are those of the machine):</p>"
        f'<pre class="command">{escape(content.command)}</pre>'
        f"<dl>{facts}</dl>{failures}{trials if content.trials.rows else ''}"
    )


def _missing(said: Sequence[str], title: str = "Missing") -> str:
    if not said:
        return ""
    items = "".join(f"<li>{escape(one)}</li>" for one in said)
    return f'<div class="missing" role="note">{title}:<ul>{items}</ul></div>'


def _part(name: str) -> str:
    return resources.files("statewise.comparison.report").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _json(value: object) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element."""
    text = json.dumps(value, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")

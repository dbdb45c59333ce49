"""Figures and tables as Markdown: the same words and numbers, the figures as tables of their ends."""

import re
from collections.abc import Sequence

from statewise.display import Format, visible
from statewise.figures.figure import FORMATS, Figure, Series
from statewise.figures.passage import Passage
from statewise.figures.table import Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def escaped(text: str) -> str:
    """Text that means itself: nothing in it is markup, and it stays on its line."""
    return _SPECIAL.sub(r"\\\1", visible(" ".join(text.split())))


def code(text: str) -> str:
    """Text whose blanks matter, inside a table. Backticks become their entity: no fence is then too short."""
    shown = visible(text).replace(" ", "␣")
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "&#124;"), ("`", "&#96;")):
        shown = shown.replace(character, entity)
    return f"<code>{shown}</code>"


def fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def table(content: Table) -> str:
    content = content.for_people()
    head = [escaped(f"{column.title} ({column.unit})" if column.unit else column.title) for column in content.columns]
    rule = [":--" if column.text else "--:" for column in content.columns]
    rows = [[escaped(cell.text) for cell in row] for row in content.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])


def figure(drawing: Figure | Passage) -> list[str]:
    parts = [f"### {escaped(drawing.title)}", escaped(drawing.reading), escaped(drawing.finding)]
    if isinstance(drawing, Figure) and drawing.series:
        parts.append(_ends(drawing))
    return [*parts, *missing(drawing.missing)]


def _ends(chart: Figure) -> str:
    """A row per series: where it ends; of rows and points, all there is."""
    x_form, y_form = FORMATS[chart.x.unit], FORMATS[chart.y.unit]
    if chart.kind in ("dots", "bars"):
        larger = [series for series in chart.series if not series.small]
        rows = [row for series in larger for row in series.y]
        columns = [larger] if len(larger) > 1 and len(set(rows)) == len(rows) else [[series] for series in chart.series]
        heads = [chart.x.label] if len(columns) == 1 else [series.name for series in chart.series]
        cells = [[name, *(_in_row(some, at, x_form) for some in columns)] for at, name in enumerate(chart.y.categories)]
        named = f"In {chart.x.label}:" if len(columns) > 1 else ""
    else:
        heads = [chart.x.label, chart.y.label]
        cells = [[series.name, x_form(series.x[-1]), y_form(series.y[-1])] for series in chart.series if series.x]
        named = "Where each curve ends:" if chart.kind == "line" else ""
    shown = table(Table.of_texts(["", *heads], cells))
    return f"{escaped(named)}\n\n{shown}" if named else shown


def _in_row(some: Sequence[Series], row: int, form: Format) -> str:
    """The values of a row, or the texts that are printed beside them."""
    texts = [
        series.text[at] if series.text else form(x)
        for series in some
        for at, (x, y) in enumerate(zip(series.x, series.y))
        if round(y) == row
    ]
    return ", ".join(texts) or "–"


def missing(said: Sequence[str]) -> list[str]:
    return ["\n".join(f"- Missing: {escaped(text)}" for text in said)] if said else []

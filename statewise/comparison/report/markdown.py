"""The report as Markdown: the same words and numbers, the figures as tables of their ends."""

import re

from statewise.comparison.report.content import Content
from statewise.comparison.report.figure import FORMATS, Figure
from statewise.comparison.report.number import plain
from statewise.comparison.report.table import Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def markdown(content: Content) -> str:
    parts = [f"# {escaped(content.title)}", escaped(content.question), *map(escaped, content.verdict)]
    parts += _missing(content.missing)
    parts += ["## The entries", table(content.table), f"Groups: {escaped(content.method)}."]
    for section in content.sections:
        parts.append(f"## {section.title}")
        for figure in section.figures:
            parts += _figure(figure)
    if content.samples or content.readings or content.missing_text:
        parts.append("## Samples and surprise")
    for sample in content.samples:
        parts += [f"### {escaped(sample.entry)}, seed {sample.seed}", fenced(sample.text)]
    if content.readings:
        rows = [
            f"| {escaped(one.entry)} | {plain(one.total)} | {plain(one.per_character())} |" for one in content.readings
        ]
        parts += [
            "Bits that the same held-out text cost each entry:",
            "\n".join(["| entry | bits | bits per character |", "|:--|--:|--:|", *rows]),
        ]
    parts += _missing(content.missing_text)
    if content.disagreements:
        rows = [
            f"| …{code(one.before)} | {code(one.piece)} "
            f"| {escaped(one.expected_by)} ({plain(one.bits[one.expected_by])}) "
            f"| {escaped(one.surprised)} ({plain(one.bits[one.surprised])}) | {plain(one.gap)} |"
            for one in content.disagreements
        ]
        head = "| after | the piece | expected by (bits) | surprised (bits) | gap (bits) |"
        parts += [
            "## Where the models disagree",
            escaped(content.disagreement),
            "\n".join([head, "|:--|:--|:--|:--|--:|", *rows]),
        ]
    parts += ["## The search", escaped(content.searched)]
    if content.search is not None:
        parts.append(table(content.search))
    parts += ["## What was run", fenced(content.command)]
    parts.append("\n".join(f"- {escaped(name)}: {escaped(value)}" for name, value in content.facts))
    if content.failures is not None:
        parts += ["### Trials that failed", table(content.failures)]
    parts += ["### Trials", table(content.trials)]
    return "\n\n".join(part for part in parts if part) + "\n"


def escaped(text: str) -> str:
    """Text that means itself: nothing in it is markup, and it stays on its line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Text whose blanks matter, inside a table. Backticks become their entity: no fence is then too short."""
    shown = text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "&#124;"), ("`", "&#96;")):
        shown = shown.replace(character, entity)
    return f"<code>{shown}</code>"


def fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def table(one: Table) -> str:
    one = one.for_people()
    head = [escaped(f"{column.title} ({column.unit})" if column.unit else column.title) for column in one.columns]
    rule = [":--" if column.text else "--:" for column in one.columns]
    rows = [[escaped(cell.text) for cell in row] for row in one.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])


def _figure(figure: Figure) -> list[str]:
    parts = [f"### {escaped(figure.title)}", escaped(figure.reading), escaped(figure.finding)]
    if figure.series:
        parts.append(_ends(figure))
    return [*parts, *_missing(figure.missing)]


def _ends(figure: Figure) -> str:
    """A row a series: where it ends; of rows and points, all there is."""
    x_form, y_form = FORMATS[figure.x.unit], FORMATS[figure.y.unit]
    if figure.kind == "dots":
        head = ["", *(series.name for series in figure.series)]
        rows = []
        for at, name in enumerate(figure.y.categories):
            cells = [
                ", ".join(x_form(x) for x, y in zip(series.x, series.y) if round(y) == at) or "–"
                for series in figure.series
            ]
            rows.append([name, *cells])
        lines = [head, [":--", *["--:"] * len(figure.series)], *rows]
        named = f"In {figure.x.label}:"
    else:
        ends = [[series.name, x_form(series.x[-1]), y_form(series.y[-1])] for series in figure.series]
        lines = [["", figure.x.label, figure.y.label], [":--", "--:", "--:"], *ends]
        named = "Where each curve ends:" if figure.kind == "line" else ""
    shown = [line if number == 1 else [escaped(cell) for cell in line] for number, line in enumerate(lines)]
    return "\n".join([*([escaped(named), ""] if named else []), *(f"| {' | '.join(line)} |" for line in shown)])


def _missing(said: tuple[str, ...]) -> list[str]:
    return ["\n".join(f"- Missing: {escaped(one)}" for one in said)] if said else []

"""The report as one page."""

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from statewise.comparison.report.content import Content, PartContent
from statewise.comparison.report.lineage import Model
from statewise.comparison.report.surprise import LEVELS, SAMPLES, Surprised, level
from statewise.display import plain, visible, whole_letters
from statewise.figures import HUES, html, swatch, widened


def page(content: Content, *, static: bool = False, live: html.Frame | None = None) -> str:
    """`static`: without scripts, pictures only. `live`: models that read what is typed."""
    return html.page(
        title=content.title,
        body="\n".join(_body(content, live)),
        description=" ".join(content.verdict),
        static=static,
        frames=[live] if live else [],
    )


def _body(content: Content, live: html.Frame | None) -> list[str]:
    sections = _sections(content, live)
    links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title, _ in sections)
    parts = [
        f'<header><p class="brand">statewise</p><h1>{escape(content.title)}</h1>',
        f'<p class="question">{escape(content.question)}</p></header>',
        _legend(content),
        _lead(content),
        html.missing(content.missing, "Missing in this report"),
        f"<nav>{links}</nav>",
    ]
    for name, title, inside in sections:
        parts.append(f'<section id="{escape(name)}"><h2>{escape(title)}</h2>\n{inside}\n</section>')
    return [part for part in parts if part]


def _lead(content: Content) -> str:
    """The figure that carries the lesson beside the verdict; the other leading figures below."""
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in content.verdict)
    said = f'<div class="verdict" role="note">{sentences}</div>'
    first, others = content.lead[:1], content.lead[1:]
    shown = "".join(html.figure(figure, content.colours) for figure in first)
    below = html.figures(others, content.colours) if others else ""
    return f'<div class="lesson">{shown}{said}</div>{below}'


def _legend(content: Content) -> str:
    """One for the page: what each colour means. A click highlights a model in every figure."""
    keys = []
    for group in content.groups:
        mark = swatch(group.colour)
        names = [_key([name], escape(name)) for name in group.entries]
        if group.name:
            names = [_key(group.entries, f"{mark}<b>{escape(group.name)}</b>"), *names]
        else:
            names = [_key(group.entries, mark + escape(group.entries[0]))]
        keys.append(f'<span class="c{group.colour % HUES}">{"".join(names)}</span>')
    means = "what the state is" if any(group.name for group in content.groups) else "model"
    return f'<div class="legend" role="group" aria-label="Legend: colour is {means}">{"".join(keys)}</div>'


def _key(entries: Sequence[str], inside: str) -> str:
    named = escape("\n".join(entries))
    return f'<button aria-pressed="false" title="highlight in all figures" data-entries="{named}">{inside}</button>'


def _sections(content: Content, live: html.Frame | None) -> list[tuple[str, str, str]]:
    sections = []
    if len(content.models) > 1:
        sections.append(("lineage", "The models, in order of years", _models(content.models)))
    several = len(content.parts) > 1
    for part in content.parts:
        name = part.name if several else "entries"
        sections.append((name, part.title if several else "Results", _results(part, content, several=several)))
    for part in content.parts:
        if part.samples or part.sampled:
            sections.append((f"{part.name}-samples" if several else "samples", "Samples", _samples(part)))
    if live:
        said = "These are the trained models, one run of each entry: type, and each reads along."
        sections.append(("live", "Try them", f"<p>{said}</p>{live.element}"))
    more = html.figures(content.more, content.colours) if content.more else ""
    more += "".join(_readings(part) + _disagreements(part) + _answers(part) for part in content.parts)
    if more:
        sections.append(("more", "More", f"<details><summary>More figures and examples</summary>{more}</details>"))
    sections.append(("settings", "Settings and search", "".join(_settings(part, several) for part in content.parts)))
    sections.append(("run", "Data, machine and command", _run(content)))
    return sections


def _results(part: PartContent, content: Content, *, several: bool) -> str:
    name = f"{part.name}-entries" if several else "entries-table"
    noisy = f" {part.noisy}" if part.noisy else ""
    parts = [
        f"<p>{escape(part.question)}</p>" if several else "",
        html.table(part.table, sortable=True),
        f'<p class="note">{escape(part.method)}{escape(noisy)} Click a column header to sort.</p>',
        html.table_export(name, part.table),
        html.figures(part.figures, content.colours) if part.figures else "",
    ]
    if part.choices is not None:
        parts += [
            f'<h3 class="table">Which one to choose</h3><p>{escape(part.choices.said)}</p>',
            html.table(part.choices.table),
        ]
    return "".join(parts)


def _models(some: Sequence[Model]) -> str:
    rows = []
    for model in some:
        paper = escape(model.paper)
        linked = f'<a href="{escape(model.link)}" rel="noopener">{paper}</a>' if model.link else paper
        names = (
            "" if model.entries == (model.kind,) else f' <span class="note">({escape(", ".join(model.entries))})</span>'
        )
        cells = [
            f"{escape(model.kind).replace('_', '_<wbr>')}{names}",
            str(model.year),
            escape(model.state),
            escape(model.fixed),
            escape(model.cost),
            f"{linked} · <code>{escape(model.page)}</code>",
        ]
        labels = ("", "", "state", "fixed", "costs", "read")
        rows.append(f"<tr>{''.join(_cell(*both) for both in zip(cells, labels))}</tr>")
    titles = ("model", "year", "the state", "what it fixed", "what it costs", "paper and page")
    return _table("lineage", [(title, "text") for title in titles], rows)


def _table(kind: str, heads: Sequence[tuple[str, str]], rows: Sequence[str]) -> str:
    """Rows that are HTML already, under titles with their classes; it scrolls where it is too wide."""
    head = "".join(f'<th scope="col" class="{of}">{escape(title)}</th>' for title, of in heads)
    return (
        f'<div class="scroll" tabindex="0"><table class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(inside: str, label: str) -> str:
    """A cell of the lineage; on narrow screens the label stands before it."""
    return f'<td class="text wrap" data-label="{label}">{inside}</td>' if label else f'<td class="text">{inside}</td>'


# -------------------------------------------------------------------- text


def _samples(part: PartContent) -> str:
    if not part.samples:
        return f"<p>{escape(part.sampled)}</p>"
    bounds = _bounds(part)
    cards = "".join(
        f'<div class="card"><h3>{escape(sample.entry)} <small class="note">seed {sample.seed}, '
        f"{plain(sample.per_character())} bits per character</small></h3>"
        f'<pre class="heat" tabindex="0">{_coloured(sample.pieces, bounds)}</pre></div>'
        for sample in part.samples
    )
    prompt = (
        f'<p>All samples continue this prompt:</p><pre class="command">{_code(part.prompt)}</pre>'
        if part.prompt
        else ""
    )
    return (
        f"{prompt}<p>Stronger colour: the model gave the sampled token a lower probability. {escape(part.sampled)}</p>"
        f'{_scale(bounds)}<div class="cards">{cards}</div>'
    )


def _readings(part: PartContent) -> str:
    """The same held-out text as the best models read it, and the worst."""
    if not part.readings:
        return ""
    shown = part.readings if len(part.readings) <= SAMPLES else (*part.readings[: SAMPLES - 1], part.readings[-1])
    bounds, best = _bounds(part), part.readings[0]
    return (
        "<h3 class='table'>The same held-out text, read by several models</h3>"
        f"<p>Stronger colour: more bits, the piece was less expected (mean over seeds). {escape(best.entry)} needs the "
        f"fewest, {plain(best.per_character())} bits per character.</p>{_scale(bounds)}"
        f'<div class="cards">{"".join(_reading(reading, bounds) for reading in shown)}</div>'
        f"{html.missing(part.missing_text)}"
    )


def _bounds(part: PartContent) -> tuple[float, ...]:
    texts = [*(sample.pieces for sample in part.samples), *(reading.pieces for reading in part.readings)]
    return widened(LEVELS, [bits for pieces in texts for _, bits in pieces])


def _scale(levels: Sequence[float]) -> str:
    bounds = [0.0, *levels, math.inf]
    steps = [
        f'<i class="heat h{at}">{f"{low:g}–{high:g}" if high < math.inf else f"over {low:g}"}</i>'
        for at, (low, high) in enumerate(pairwise(bounds))
    ]
    return f'<div class="scale heat"><span>bits:</span>{"".join(steps)}</div>'


def _reading(reading: Surprised, bounds: Sequence[float]) -> str:
    return (
        f'<div class="card"><h3>{escape(reading.entry)} <small class="note">{plain(reading.per_character())} bits per '
        f'character</small></h3><p class="pieces heat">{_coloured(reading.pieces, bounds)}</p></div>'
    )


def _coloured(pieces: Sequence[tuple[str, float]], bounds: Sequence[float]) -> str:
    """A piece that adds no letter (a combining mark) is shown with the one before it, with the bits of both."""
    shown = []
    for some in whole_letters([piece for piece, _ in pieces]):
        text, bits = "".join(pieces[at][0] for at in some), sum(pieces[at][1] for at in some)
        shown.append(f'<i class="h{level(bits, bounds)}" title="{plain(bits)} bits">{html.broken(text)}</i>')
    return "".join(shown)


def _disagreements(part: PartContent) -> str:
    if not part.disagreements:
        return ""
    rows = []
    for disagreement in part.disagreements:
        least, most = (plain(disagreement.bits[name]) for name in (disagreement.expected_by, disagreement.surprised))
        every = ", ".join(
            f"{name} {plain(bits)}" for name, bits in sorted(disagreement.bits.items(), key=lambda item: item[1])
        )
        rows.append(
            f'<tr><td class="text wrap"><code>{_code(disagreement.before)}<mark>{_code(disagreement.piece)}</mark>'
            f"{_code(disagreement.after)}</code></td>"
            f'<td class="text">{escape(disagreement.expected_by)} <span class="note">{least}</span></td>'
            f'<td class="text">{escape(disagreement.surprised)} <span class="note">{most}</span></td>'
            f'<td title="{escape(every)}">{plain(disagreement.gap)}</td></tr>'
        )
    heads = [("piece in context", "text"), ("fewest bits", "text"), ("most bits", "text"), ("difference (bits)", "")]
    return (
        f"<h3 class='table'>Where the models disagree</h3><p>{escape(part.disagreement)} Pieces of the held-out text, "
        f"largest difference first.</p>{_table('places', heads, rows)}"
    )


def _answers(part: PartContent) -> str:
    if not part.answers:
        return ""
    heads = [(title, "text") for title in ("input", "truth", *part.answers[0].answers)]
    rows = []
    for question in part.answers:
        cells = "".join(
            f'<td class="text wrap">{"<mark>" if name in question.right else ""}{escape(answer) or "–"}'
            f"{'</mark>' if name in question.right else ''}</td>"
            for name, answer in question.answers.items()
        )
        known = "".join(f'<td class="text wrap">{escape(text)}</td>' for text in (question.given, question.truth))
        rows.append(f"<tr>{known}{cells}</tr>")
    return f"<h3 class='table'>Answers</h3><p>{escape(part.answered)}</p>{_table('answers', heads, rows)}"


def _code(text: str) -> str:
    return escape(visible(text))


# -------------------------------------------------------------------- settings, facts


def _settings(part: PartContent, several: bool) -> str:
    parts = [f"<h3 class='table'>{escape(part.title)}</h3>" if several else ""]
    if part.settings is not None:
        parts.append(f"<p>{escape(part.settings.shared)}</p>" if part.settings.shared else "")
        parts.append(html.table(part.settings.table) if part.settings.table else "")
    parts.append(f'<p class="after">{escape(part.searched)}</p>')
    parts.append(html.table(part.record) if part.record else "")
    parts.append(
        f"<details><summary>Every search trial</summary>{html.table(part.search)}</details>" if part.search else ""
    )
    return "".join(parts)


def _run(content: Content) -> str:
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in content.facts)
    several = len(content.parts) > 1
    tables = []
    for part in content.parts:
        of = f" of {escape(part.name)}" if several else ""
        if part.failures:
            tables.append(f"<h3>Failed trials{of}</h3>{html.table(part.failures)}")
        if part.trials.rows:
            every = f"<summary>Every trial{of}, with its folder and weights</summary>"
            tables.append(f"<details>{every}{html.table(part.trials)}</details>")
    return (
        "<p>This command reproduces the results (times depend on the machine):</p>"
        f'<pre class="command">{escape(content.command)}</pre><dl>{facts}</dl>{"".join(tables)}'
        '<p class="note">Made with statewise: every sequence model is a state machine, '
        "<code>y, state = model(x, state)</code>.</p>"
    )

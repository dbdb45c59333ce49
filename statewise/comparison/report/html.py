"""The report as one page."""

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from statewise.comparison.report.content import Content
from statewise.comparison.report.surprise import LEVELS, Surprised, level
from statewise.figures import html
from statewise.figures.html import broken, figures, missing, table, table_export
from statewise.figures.letter import visible, whole_letters
from statewise.figures.number import plain
from statewise.figures.passage import stretched


def page(content: Content, *, static: bool = False) -> str:
    """`static`, or no plotly installed: drawings only."""
    body = "\n".join(_body(content))
    return html.page(title=content.title, body=body, figures=content.figures, colours=_colours(content), static=static)


def _colours(content: Content) -> dict[str, int]:
    return {name: at for at, name in enumerate(content.order)}


def _body(content: Content) -> list[str]:
    sections = _sections(content)
    links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title, _ in sections)
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in content.verdict)
    parts = [
        f"<header><h1>{escape(content.title)}</h1>",
        f'<p class="question">{escape(content.question)}</p>',
        f'<div class="verdict" role="note">{sentences}</div>',
        missing(content.missing, "Missing in this report"),
        f"<nav>{links}</nav></header>",
    ]
    for name, title, inside in sections:
        parts.append(f'<section id="{name}"><h2>{escape(title)}</h2>\n{inside}\n</section>')
    return [part for part in parts if part]


def _sections(content: Content) -> list[tuple[str, str, str]]:
    colours = _colours(content)
    noisy = f" {content.noisy}" if content.noisy else ""
    note = f'<p class="note">{escape(content.method)}{escape(noisy)} A column is sorted by its title.</p>'
    found = [
        ("entries", "The entries", table(content.table, sortable=True) + note + table_export("entries", content.table))
    ]
    if content.choices is not None:
        said = f"<p>{escape(content.choices.said)}</p>"
        found.append(("choice", "Which one to take", said + table(content.choices.table)))
    found += [(one.name, one.title, figures(one.figures, colours)) for one in content.sections]
    if content.samples or content.readings or content.missing_text:
        found.append(("samples", "Samples and surprise", _samples(content)))
    if content.answers:
        found.append(("answers", "What each answers", _answers(content)))
    if content.disagreements:
        found.append(("disagreement", "Where the models disagree", _disagreements(content)))
    searched = f"<p>{escape(content.searched)}</p>"
    found.append(("search", "The search", searched + (table(content.search) if content.search else "")))
    found.append(("run", "What was run", _run(content)))
    return found


# -------------------------------------------------------------------- text


def _samples(content: Content) -> str:
    parts = []
    texts = [*(one.pieces for one in content.samples), *(one.pieces for one in content.readings)]
    bounds = stretched(LEVELS, [bits for pieces in texts for _, bits in pieces])
    if content.samples:
        cards = "".join(
            f'<div class="card"><h3>{escape(one.entry)} <small class="note">seed {one.seed}, '
            f"{plain(one.per_character())} bits per character</small></h3>"
            f'<pre class="heat" tabindex="0">{_coloured(one.pieces, bounds)}</pre></div>'
            for one in content.samples
        )
        prompt = f'<pre class="command">{_code(content.prompt)}</pre>' if content.prompt else ""
        parts.append(
            f"<p>What each entry writes, from the same beginning:</p>{prompt}<p>The deeper the colour, the less it "
            f'expected the piece that chance chose for it.</p>{_legend(bounds)}<div class="cards">{cards}</div>'
        )
    if content.readings:
        best = min(content.readings, key=lambda one: one.total)
        parts.append(
            "<h3 style='margin-top:1.6rem'>The same held-out text, as each entry read it</h3>"
            "<p>The deeper the colour, the more bits a piece cost: the less it was expected. The mean over seeds. "
            f"{escape(best.entry)} paid least, {plain(best.per_character())} bits per character.</p>{_legend(bounds)}"
            f'<div class="cards">{"".join(_reading(one, bounds) for one in content.readings)}</div>'
        )
    return "".join(parts) + missing(content.missing_text)


def _legend(levels: Sequence[float]) -> str:
    bounds = [0.0, *levels, math.inf]
    steps = [
        f'<i class="heat h{at}">{f"{low:g}–{high:g}" if high < math.inf else f"over {low:g}"}</i>'
        for at, (low, high) in enumerate(pairwise(bounds))
    ]
    return f'<div class="scale heat"><span>bits:</span>{"".join(steps)}</div>'


def _reading(one: Surprised, bounds: Sequence[float]) -> str:
    return (
        f'<div class="card"><h3>{escape(one.entry)} <small class="note">{plain(one.per_character())} bits per '
        f'character</small></h3><p class="pieces heat">{_coloured(one.pieces, bounds)}</p></div>'
    )


def _coloured(pieces: Sequence[tuple[str, float]], bounds: Sequence[float]) -> str:
    """What adds no letter to the piece before it is shown with it: what they cost together."""
    shown = []
    for some in whole_letters([piece for piece, _ in pieces]):
        text, bits = "".join(pieces[at][0] for at in some), sum(pieces[at][1] for at in some)
        shown.append(f'<i class="h{level(bits, bounds)}" title="{plain(bits)} bits">{broken(text)}</i>')
    return "".join(shown)


def _disagreements(content: Content) -> str:
    rows = []
    for one in content.disagreements:
        least, most = (plain(one.bits[name]) for name in (one.expected_by, one.surprised))
        every = ", ".join(f"{name} {plain(bits)}" for name, bits in sorted(one.bits.items(), key=lambda item: item[1]))
        rows.append(
            f'<tr><td class="text wrap"><code>{_code(one.before)}<mark>{_code(one.piece)}</mark>'
            f"{_code(one.after)}</code></td>"
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


def _answers(content: Content) -> str:
    entries = list(content.answers[0].answers)
    head = "".join(f'<th scope="col" class="text">{escape(title)}</th>' for title in ("given", "the truth", *entries))
    rows = []
    for one in content.answers:
        cells = "".join(
            f'<td class="text wrap">{"<mark>" if name in one.right else ""}{escape(answer) or "–"}'
            f"{'</mark>' if name in one.right else ''}</td>"
            for name, answer in one.answers.items()
        )
        known = "".join(f'<td class="text wrap">{escape(text)}</td>' for text in (one.given, one.truth))
        rows.append(f"<tr>{known}{cells}</tr>")
    return (
        f'<p>{escape(content.answered)}</p><div class="scroll" tabindex="0"><table class="answers">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _code(text: str) -> str:
    return escape(visible(text))


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

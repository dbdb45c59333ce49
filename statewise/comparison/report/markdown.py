"""The report as Markdown: the same words and numbers, the figures as tables of their ends."""

from statewise.comparison.report.content import Content
from statewise.figures.markdown import code, escaped, fenced, figure, missing, table
from statewise.figures.number import plain


def markdown(content: Content) -> str:
    parts = [f"# {escaped(content.title)}", escaped(content.question), *map(escaped, content.verdict)]
    parts += missing(content.missing)
    parts += [
        "## The entries",
        table(content.table),
        f"{escaped(content.method)} {escaped(content.noisy)}".strip(),
    ]
    if content.choices is not None:
        parts += ["## Which one to take", escaped(content.choices.said), table(content.choices.table)]
    for section in content.sections:
        parts.append(f"## {section.title}")
        for one in section.figures:
            parts += figure(one)
    if content.samples or content.readings or content.missing_text:
        parts.append("## Samples and surprise")
    if content.prompt:
        parts += ["All samples go on from:", fenced(content.prompt)]
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
    parts += missing(content.missing_text)
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
    if content.answers:
        entries = list(content.answers[0].answers)
        lines = [["given", "the truth", *entries], [":--"] * (2 + len(entries))]
        lines += [
            [one.given, one.truth, *(f"✓ {said}" if name in one.right else said for name, said in one.answers.items())]
            for one in content.answers
        ]
        shown = [line if number == 1 else [escaped(cell) for cell in line] for number, line in enumerate(lines)]
        rows = [f"| {' | '.join(line)} |" for line in shown]
        parts += ["## What each answers", escaped(content.answered), "\n".join(rows)]
    parts += ["## The search", escaped(content.searched)]
    if content.search is not None:
        parts.append(table(content.search))
    parts += ["## What was run", fenced(content.command)]
    parts.append("\n".join(f"- {escaped(name)}: {escaped(value)}" for name, value in content.facts))
    if content.failures is not None:
        parts += ["### Trials that failed", table(content.failures)]
    parts += ["### Trials", table(content.trials)]
    return "\n\n".join(part for part in parts if part) + "\n"

"""The report as Markdown: the same words and numbers, the figures as tables."""

from statewise.comparison.report.content import Content, PartContent
from statewise.figures.markdown import code, escaped, fenced, figure, missing, table
from statewise.figures.number import plain


def markdown(content: Content) -> str:
    several = len(content.parts) > 1
    parts = [f"# {escaped(content.title)}", escaped(content.question), *map(escaped, content.verdict)]
    parts += missing(content.missing)
    for one in content.lead:
        parts += figure(one)
    if len(content.models) > 1:
        parts += ["## The models, in order of years", *_models(content)]
    for part in content.parts:
        parts += _results(part, several=several)
    for part in content.parts:
        parts += _samples(part)
    if content.more:
        parts.append("## More")
    for one in content.more:
        parts += figure(one)
    for part in content.parts:
        parts += [*_readings(part), *_disagreements(part), *_answers(part)]
    parts.append("## Settings and search")
    for part in content.parts:
        parts += _settings(part, several=several)
    parts += ["## Data, machine and command", fenced(content.command)]
    parts.append("\n".join(f"- {escaped(name)}: {escaped(value)}" for name, value in content.facts))
    for part in content.parts:
        of = f" of {part.name}" if several else ""
        parts += [f"### Failed trials{of}", table(part.failures)] if part.failures is not None else []
        parts += [f"### Trials{of}", table(part.trials)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _models(content: Content) -> list[str]:
    rows = []
    for one in content.models:
        paper = f"[{escaped(one.paper)}]({one.link})" if one.link else escaped(one.paper)
        names = "" if one.entries == (one.kind,) else f" ({', '.join(one.entries)})"
        cells = [escaped(one.kind + names), str(one.year), *map(escaped, (one.state, one.fixed, one.cost)), paper]
        rows.append(f"| {' | '.join([*cells, escaped(one.page)])} |")
    head = "| model | year | the state | what it fixed | what it costs | paper | page |"
    return ["\n".join([head, f"|{':--|' * 7}", *rows])]


def _results(part: PartContent, *, several: bool) -> list[str]:
    parts = [f"## {escaped(part.title) if several else 'Results'}"]
    parts += [escaped(part.question)] if several else []
    parts += [table(part.table), f"{escaped(part.method)} {escaped(part.noisy)}".strip()]
    for one in part.figures:
        parts += figure(one)
    if part.choices is not None:
        parts += ["### Which one to choose", escaped(part.choices.said), table(part.choices.table)]
    return parts


def _samples(part: PartContent) -> list[str]:
    if not (part.samples or part.sampled):
        return []
    parts = ["## Samples", escaped(part.sampled)]
    if part.prompt:
        parts += ["All samples continue this prompt:", fenced(part.prompt)]
    for sample in part.samples:
        parts += [f"### {escaped(sample.entry)}, seed {sample.seed}", fenced(sample.text)]
    return parts


def _readings(part: PartContent) -> list[str]:
    if not part.readings:
        return []
    rows = [f"| {escaped(one.entry)} | {plain(one.total)} | {plain(one.per_character())} |" for one in part.readings]
    return [
        "### The same held-out text, read by several models",
        "\n".join(["| model | bits | bits per character |", "|:--|--:|--:|", *rows]),
        *missing(part.missing_text),
    ]


def _disagreements(part: PartContent) -> list[str]:
    if not part.disagreements:
        return []
    rows = [
        f"| …{code(one.before)} | {code(one.piece)} "
        f"| {escaped(one.expected_by)} ({plain(one.bits[one.expected_by])}) "
        f"| {escaped(one.surprised)} ({plain(one.bits[one.surprised])}) | {plain(one.gap)} |"
        for one in part.disagreements
    ]
    head = "| after | piece | fewest bits | most bits | difference (bits) |"
    table_text = "\n".join([head, "|:--|:--|:--|:--|--:|", *rows])
    return ["### Where the models disagree", escaped(part.disagreement), table_text]


def _answers(part: PartContent) -> list[str]:
    if not part.answers:
        return []
    entries = list(part.answers[0].answers)
    lines = [["input", "truth", *entries], [":--"] * (2 + len(entries))]
    lines += [
        [one.given, one.truth, *(f"✓ {said}" if name in one.right else said for name, said in one.answers.items())]
        for one in part.answers
    ]
    shown = [line if number == 1 else [escaped(cell) for cell in line] for number, line in enumerate(lines)]
    return ["### Answers", escaped(part.answered), "\n".join(f"| {' | '.join(line)} |" for line in shown)]


def _settings(part: PartContent, *, several: bool) -> list[str]:
    parts = [f"### {escaped(part.title)}"] if several else []
    if part.settings is not None:
        parts += [escaped(part.settings.shared), table(part.settings.table) if part.settings.table else ""]
    parts.append(escaped(part.searched))
    return [*parts, *(table(found) for found in (part.record, part.search) if found is not None)]

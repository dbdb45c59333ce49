"""The report as Markdown: the same words and numbers, the figures as tables."""

from statewise.comparison.report.content import Content, PartContent
from statewise.display import plain
from statewise.figures import Table
from statewise.figures import markdown as md


def markdown(content: Content) -> str:
    several = len(content.parts) > 1
    parts = [f"# {md.escaped(content.title)}", md.escaped(content.question), *map(md.escaped, content.verdict)]
    parts += md.missing(content.missing)
    for figure in content.lead:
        parts += md.figure(figure)
    if len(content.models) > 1:
        parts += ["## The models, in order of years", *_models(content)]
    for part in content.parts:
        parts += _results(part, several=several)
    for part in content.parts:
        parts += _samples(part)
    if content.more:
        parts.append("## More")
    for figure in content.more:
        parts += md.figure(figure)
    for part in content.parts:
        parts += [*_readings(part), *_disagreements(part), *_answers(part)]
    parts.append("## Settings and search")
    for part in content.parts:
        parts += _settings(part, several=several)
    parts += ["## Data, machine and command", md.fenced(content.command)]
    parts.append("\n".join(f"- {md.escaped(name)}: {md.escaped(value)}" for name, value in content.facts))
    for part in content.parts:
        of = f" of {part.name}" if several else ""
        parts += [f"### Failed trials{of}", md.table(part.failures)] if part.failures is not None else []
        parts += [f"### Trials{of}", md.table(part.trials)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _models(content: Content) -> list[str]:
    rows = []
    for model in content.models:
        paper = f"[{md.escaped(model.paper)}]({model.link})" if model.link else md.escaped(model.paper)
        names = "" if model.entries == (model.kind,) else f" ({', '.join(model.entries)})"
        cells = [
            md.escaped(model.kind + names),
            str(model.year),
            *map(md.escaped, (model.state, model.fixed, model.cost)),
            paper,
        ]
        rows.append(f"| {' | '.join([*cells, md.escaped(model.page)])} |")
    head = "| model | year | the state | what it fixed | what it costs | paper | page |"
    return ["\n".join([head, f"|{':--|' * 7}", *rows])]


def _results(part: PartContent, *, several: bool) -> list[str]:
    parts = [f"## {md.escaped(part.title) if several else 'Results'}"]
    parts += [md.escaped(part.question)] if several else []
    parts += [md.table(part.table), f"{md.escaped(part.method)} {md.escaped(part.noisy)}".strip()]
    for figure in part.figures:
        parts += md.figure(figure)
    if part.choices is not None:
        parts += ["### Which one to choose", md.escaped(part.choices.said), md.table(part.choices.table)]
    return parts


def _samples(part: PartContent) -> list[str]:
    if not (part.samples or part.sampled):
        return []
    parts = ["## Samples", md.escaped(part.sampled)]
    if part.prompt:
        parts += ["All samples continue this prompt:", md.fenced(part.prompt)]
    for sample in part.samples:
        parts += [f"### {md.escaped(sample.entry)}, seed {sample.seed}", md.fenced(sample.text)]
    return parts


def _readings(part: PartContent) -> list[str]:
    if not part.readings:
        return []
    rows = [
        f"| {md.escaped(reading.entry)} | {plain(reading.total)} | {plain(reading.per_character())} |"
        for reading in part.readings
    ]
    return [
        "### The same held-out text, read by several models",
        "\n".join(["| model | bits | bits per character |", "|:--|--:|--:|", *rows]),
        *md.missing(part.missing_text),
    ]


def _disagreements(part: PartContent) -> list[str]:
    if not part.disagreements:
        return []
    rows = [
        f"| …{md.code(word.before)} | {md.code(word.piece)} "
        f"| {md.escaped(word.expected_by)} ({plain(word.bits[word.expected_by])}) "
        f"| {md.escaped(word.surprised)} ({plain(word.bits[word.surprised])}) | {plain(word.gap)} |"
        for word in part.disagreements
    ]
    head = "| after | piece | fewest bits | most bits | difference (bits) |"
    table_text = "\n".join([head, "|:--|:--|:--|:--|--:|", *rows])
    return ["### Where the models disagree", md.escaped(part.disagreement), table_text]


def _answers(part: PartContent) -> list[str]:
    if not part.answers:
        return []
    heads = ["input", "truth", *part.answers[0].answers]
    rows = [
        [
            asked.given,
            asked.truth,
            *(f"✓ {said}" if name in asked.right else said for name, said in asked.answers.items()),
        ]
        for asked in part.answers
    ]
    table = md.table(Table.of_texts(heads, rows, words=len(heads)))
    return ["### Answers", md.escaped(part.answered), table]


def _settings(part: PartContent, *, several: bool) -> list[str]:
    parts = [f"### {md.escaped(part.title)}"] if several else []
    if part.settings is not None:
        parts += [md.escaped(part.settings.shared), md.table(part.settings.table) if part.settings.table else ""]
    parts.append(md.escaped(part.searched))
    return [*parts, *(md.table(table) for table in (part.record, part.search) if table is not None)]

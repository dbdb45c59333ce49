"""All that the report says, before it has a form: HTML, Markdown and JSON are three ways to write this down."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from statewise.comparison.budget import Entry
from statewise.comparison.report.answers import Asked, answered, courses, disputed
from statewise.comparison.report.choice import Choices, choices
from statewise.comparison.report.costs import contexts, memory, quality, standings, throughput
from statewise.comparison.report.curves import learning_curves
from statewise.comparison.report.held import held_equal
from statewise.comparison.report.results import Results, sort
from statewise.comparison.report.surprise import Disagreement, Surprised, Written, disagreements, readings, written
from statewise.comparison.report.table import entry_table, failure_table, search_table, trial_table
from statewise.comparison.report.verdict import listed, named, verdict
from statewise.comparison.statistics import Ranking, ranking
from statewise.comparison.trial import COSTS, Failure, Found
from statewise.figures.figure import Figure
from statewise.figures.letter import alone
from statewise.figures.number import plain
from statewise.figures.table import Table
from statewise.specs.study import StudySpec

_ABOUT_MACHINE = ("statewise", "python", "torch", "numpy", "platform", "device", "threads", "processes")


_WILD = 4.0  # times the usual spread


class Section(NamedTuple):
    name: str
    title: str
    figures: tuple[Figure, ...]


class Content(NamedTuple):
    title: str
    question: str
    verdict: tuple[str, str]
    missing: tuple[str, ...]
    table: Table
    method: str  # of the ranking, in words
    noisy: str  # whose spread makes groups coarse; often nothing
    choices: Choices | None
    sections: tuple[Section, ...]
    samples: tuple[Written, ...]
    prompt: str  # what all samples go on from
    answers: tuple[Asked, ...]
    answered: str  # what they show, in a sentence
    readings: tuple[Surprised, ...]
    disagreements: tuple[Disagreement, ...]
    disagreement: str  # what they show, in a sentence
    missing_text: tuple[str, ...]  # of samples and surprise
    search: Table | None
    searched: str  # how, in a sentence
    trials: Table
    failures: Table | None
    facts: tuple[tuple[str, str], ...]
    command: str
    order: tuple[str, ...]  # entries, as they are coloured

    @property
    def figures(self) -> list[Figure]:
        return [figure for section in self.sections for figure in section.figures]


def gather(
    study: StudySpec,
    entries: Sequence[Entry],
    found: Sequence[Found],
    *,
    failures: Sequence[Failure] = (),
    folder: Path,
    command: str | None = None,
) -> Content:
    solved = {entry.name: entry for entry in entries}
    unheld = [entry.name for entry in entries if len(entry.held) < len(study.budget.held())]
    names = solved or [entry.name for entry in study.entry]
    results = sort(study, names, found, failures, unheld=unheld)
    final = [one for runs in results.final.values() for one in runs]
    ranked = ranking(final, metric=study.metric, better=study.better, entries=results.done or None)
    standing = {one.entry: one for one in ranked.standings}
    text = study.metric not in COSTS  # what nothing was learned for is not worth reading
    read, unread = readings(results) if text else ([], [])
    apart = disagreements(read)
    environment = _environment(folder, final)
    samples, asked = (written(results) if text else []), disputed(results)
    silent = [name for name in results.done if all(one.sample is None for one in results.final[name])]
    return Content(
        title=study.title,
        question=study.question,
        verdict=verdict(results, ranked),
        missing=tuple(results.missing()),
        table=entry_table(results, ranked, solved),
        method=ranked.method,
        noisy=_noisy(ranked),
        choices=choices(results, ranked),
        sections=tuple(_sections(results, standing)),
        samples=tuple(samples),
        prompt=next((one.prompt for one in final if one.prompt), ""),
        answers=tuple(asked),
        answered=answered(asked),
        readings=tuple(read),
        disagreements=tuple(apart),
        disagreement=_disagreement(apart),
        missing_text=(*([f"No sample was written by {', '.join(silent)}."] if silent else []), *unread)
        if samples
        else (),
        search=search_table(results),
        searched=_searched(study),
        trials=trial_table(results),
        failures=failure_table(results),
        facts=tuple(_facts(study, entries, results, environment)),
        command=command or _command(environment) or "statewise compare",
        order=results.order,
    )


def as_dict(content: Content) -> dict[str, Any]:
    """For `report.json`: everything, the figures' numbers and the cells' texts included."""
    return {
        "title": content.title,
        "question": content.question,
        "verdict": list(content.verdict),
        "missing": list(content.missing),
        "table": content.table.as_dict(),
        "method": content.method,
        "noisy": content.noisy,
        "choices": None
        if content.choices is None
        else {**content.choices.table.as_dict(), "said": content.choices.said},
        "sections": [
            {"name": one.name, "title": one.title, "figures": [figure.as_dict() for figure in one.figures]}
            for one in content.sections
        ],
        "samples": [{**one._asdict(), "text": one.text} for one in content.samples],
        "prompt": content.prompt,
        "answers": [one._asdict() for one in content.answers],
        "answered": content.answered,
        "surprise": [{**one._asdict(), "bits_per_character": one.per_character()} for one in content.readings],
        "disagreements": [one._asdict() for one in content.disagreements],
        "disagreement": content.disagreement,
        "missing_text": list(content.missing_text),
        "search": None if content.search is None else content.search.as_dict(),
        "searched": content.searched,
        "trials": content.trials.as_dict(),
        "failures": None if content.failures is None else content.failures.as_dict(),
        "facts": dict(content.facts),
        "command": content.command,
    }


def _sections(results: Results, standing: Mapping[str, Any]) -> list[Section]:
    if not results.done:
        return []
    found = [
        Section("standings", "Standings", (standings(results, standing),)),
        *([Section("learning", "Learning", tuple(learning_curves(results)))] if results.learned() else []),
        Section("quality", "Against size", tuple(quality(results, standing))),
        Section("speed", "Speed and memory", (throughput(results), memory(results))),
        Section("context", "As the context grows", tuple(contexts(results))),
        Section("forecast", "A forecast of each", tuple(courses(results))),
    ]
    return [one for one in found if one.figures]


def _noisy(ranked: Ranking) -> str:
    """One spread is taken for all: whoever varies far more than the others makes it larger than theirs."""
    known = {one.entry: one.deviation for one in ranked.standings if one.deviation}
    if len(known) < 3:
        return ""
    usual = median(known.values())
    wild = [name for name, deviation in known.items() if deviation > _WILD * usual]
    if not wild:
        return ""
    return (
        f"Seeds of {listed([*map(named, wild)])} lie more than {_WILD:g} times as far apart as is usual here: with one "
        "spread for all, the others are told apart less easily than they could be."
    )


def _disagreement(apart: Sequence[Disagreement]) -> str:
    if not apart:
        return "At least two entries that read the same text are needed to disagree."
    first = apart[0]
    return (
        f"The largest gap is {plain(first.gap)} bits, at {alone(first.piece)!r}: {first.expected_by} paid "
        f"{plain(first.bits[first.expected_by])} bits, {first.surprised} {plain(first.bits[first.surprised])}."
    )


def _searched(study: StudySpec) -> str:
    if study.search.trials == 1:
        return "Nothing was searched: every entry was run with its settings as written."
    space = "; ".join(f"{path}: {', '.join(map(str, values))}" for path, values in study.search.space.items())
    return (
        f"Every entry had the same {study.search.trials} tries, on a seed of their own, from the same values "
        f"({space}); the best was then run on all seeds."
    )


def _facts(
    study: StudySpec, entries: Sequence[Entry], results: Results, environment: Mapping[str, Any]
) -> list[tuple[str, str]]:
    done = sum(len(runs) for runs in results.final.values())
    facts = [
        ("held equal", held_equal(results, entries)),
        ("trials", f"{done} of {len(results.order) * study.seeds} finished; {study.seeds} an entry, by seed"),
        ("data", _corpus(environment)),
        ("fingerprint", ", ".join(sorted({entry.data for entry in entries})) or "not recorded"),
    ]
    if results.unheld:
        facts.append(("not held", f"{', '.join(sorted(results.unheld))}: shown as written, outside of the budget"))
    facts += [(name, str(environment[name])) for name in _ABOUT_MACHINE if name in environment]
    return facts


def _corpus(environment: Mapping[str, Any]) -> str:
    corpus = environment.get("corpus", environment.get("data"))
    if not isinstance(corpus, Mapping):
        return str(corpus) if corpus is not None else "not recorded"
    return ", ".join(f"{str(name).replace('_', ' ')} {_told(value)}" for name, value in corpus.items())


def _told(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _environment(folder: Path, final: Sequence[Found]) -> dict[str, Any]:
    """What the first trial that has one wrote of its machine."""
    for one in final:
        path = folder / "trials" / one.key / "run" / "environment.json"
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(facts, dict):
            return facts
    return {}


def _command(environment: Mapping[str, Any]) -> str | None:
    words = environment.get("command")
    return shlex.join(map(str, words)) if isinstance(words, list) and "compare" in words else None

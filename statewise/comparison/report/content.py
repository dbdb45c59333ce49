"""The content of the report, independent of its format: HTML, Markdown and JSON are written from it."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from statewise.comparison.budget import Entry
from statewise.comparison.report.answers import Asked, answered, courses, disputed
from statewise.comparison.report.choice import Choices, choices
from statewise.comparison.report.costs import by_number, contexts, lesson, standings, throughput, tradeoffs
from statewise.comparison.report.curves import learning_curves
from statewise.comparison.report.lineage import Group, Model, colours, groups, models
from statewise.comparison.report.results import Results, sort
from statewise.comparison.report.surprise import Disagreement, Surprised, Written, disagreements, readings, written
from statewise.comparison.report.table import (
    Settings,
    entry_table,
    failure_table,
    held_equal,
    record_table,
    search_table,
    settings_table,
    trial_table,
)
from statewise.comparison.report.verdict import listed, named, verdict
from statewise.comparison.search import mismatch
from statewise.comparison.statistics import Ranking, ranking
from statewise.comparison.trial import COSTS, Failure, Found
from statewise.display import alone, plain
from statewise.figures import Figure, Table
from statewise.specs import StudySpec, from_json, read_small

MOST = 8  # figures before "more"
_ABOUT_MACHINE = ("statewise", "python", "torch", "numpy", "platform", "device", "threads", "processes")
_NOISY = 4.0  # times the median standard deviation over seeds


class Part(NamedTuple):
    """One study of a report: its question, plan and results, and the folder with its trials."""

    name: str
    study: StudySpec
    entries: Sequence[Entry]
    found: Sequence[Found]
    failures: Sequence[Failure]
    folder: Path


class PartContent(NamedTuple):
    """The part of the report about one study."""

    name: str
    title: str
    question: str
    table: Table
    also: tuple[str, ...]  # its columns that hold the study's other metrics
    method: str  # of the statistical tests
    noisy: str  # entries whose variance makes the tests coarse; often nothing
    choices: Choices | None
    figures: tuple[Figure, ...]  # before "more", besides the one that opens the report
    samples: tuple[Written, ...]
    sampled: str  # which samples are shown
    prompt: str  # what all samples continue
    answers: tuple[Asked, ...]
    answered: str  # what they show, in a sentence
    readings: tuple[Surprised, ...]
    disagreements: tuple[Disagreement, ...]
    disagreement: str  # what they show, in a sentence
    missing_text: tuple[str, ...]  # of samples and readings
    settings: Settings | None
    search: Table | None
    record: Table | None
    searched: str  # how settings were chosen, in a sentence
    trials: Table
    failures: Table | None


class Content(NamedTuple):
    title: str
    question: str
    verdict: tuple[str, ...]
    missing: tuple[str, ...]
    lead: tuple[Figure, ...]  # the first carries the lesson
    parts: tuple[PartContent, ...]
    more: tuple[Figure, ...]
    models: tuple[Model, ...]
    groups: tuple[Group, ...]  # the page's legend
    facts: tuple[tuple[str, str], ...]
    command: str

    @property
    def figures(self) -> list[Figure]:
        return [*self.lead, *(figure for part in self.parts for figure in part.figures), *self.more]

    @property
    def colours(self) -> dict[str, int]:
        return colours(self.groups)


class _Study(NamedTuple):
    part: Part
    results: Results
    ranking: Ranking


def gather(
    parts: Sequence[Part], *, title: str, question: str, command: str | None = None, look: Figure | None = None
) -> Content:
    assert parts, "a report needs at least one study"
    studies = []
    for part in parts:
        results = sort(part.study, part.entries, part.found, part.failures, part=part.name, alone=len(parts) == 1)
        final = [run for runs in results.final.values() for run in runs]
        ranked = ranking(final, metric=part.study.metric, better=part.study.better, entries=results.done or None)
        studies.append(_Study(part, results, ranked))
    lead, own, more = _choose(studies, look)
    kinds = {name: kind for study in studies for name, kind in study.results.kinds.items()}
    names = list(dict.fromkeys(name for study in studies for name in study.results.order))
    environment = next(filter(None, (_environment(study) for study in studies)), {})
    return Content(
        title=title,
        question=question,
        verdict=verdict([(study.results, study.ranking) for study in studies]),
        missing=tuple(said for study in studies for said in _missing(study)),
        lead=tuple(lead),
        parts=tuple(_part_content(study, own[at]) for at, study in enumerate(studies)),
        more=tuple(more),
        models=tuple(models(kinds)),
        groups=tuple(groups(names, kinds)),
        facts=tuple(_facts(studies, environment)),
        command=command or _command(environment) or "statewise compare",
    )


def _part_content(study: _Study, figures: Sequence[Figure]) -> PartContent:
    part, results, ranked = study
    text = part.study.metric not in COSTS  # a study of costs trains nothing that could generate text
    samples, sampled = written(results, ranked) if text else ([], "")
    read, unread = readings(results) if text else ([], [])
    apart, asked = disagreements(read), disputed(results)
    final = [run for runs in results.final.values() for run in runs]
    return PartContent(
        name=part.name,
        title=part.study.title,
        question=part.study.question,
        table=entry_table(results, ranked, {entry.name: entry for entry in part.entries}),
        also=tuple(name for names in results.also().values() for name in names),
        method=ranked.method,
        noisy=_noisy(ranked),
        choices=choices(results, ranked),
        figures=tuple(figures),
        samples=tuple(samples),
        sampled=sampled,
        prompt=next((run.prompt for run in final if run.prompt), "") if samples else "",
        answers=tuple(asked),
        answered=answered(asked),
        readings=tuple(sorted(read, key=lambda reading: reading.total)),
        disagreements=tuple(apart),
        disagreement=_disagreement(apart),
        missing_text=tuple(unread) if read else (),
        settings=settings_table(results),
        search=search_table(results),
        record=record_table(results),
        searched=_searched(part.study, part.entries),
        trials=trial_table(results),
        failures=failure_table(results),
    )


def _choose(studies: Sequence[_Study], look: Figure | None) -> tuple[list[Figure], list[list[Figure]], list[Figure]]:
    """The figures that open the report, those of each study, and the rest: at most eight come before the rest."""
    done = [study for study in studies if study.results.done]
    lead = [lesson(study.results, study.ranking) for study in done]
    lead += [look] if look is not None else []
    trained = [study for study in done if study.part.study.metric not in COSTS]
    learning = {study.part.name: learning_curves(study.results) for study in trained}
    growth = {study.part.name: contexts(study.results) for study in done}
    against = {study.part.name: tradeoffs(study.results, study.ranking) for study in done}
    widest = max(done, key=lambda study: len(study.results.done), default=None)
    wanted: list[tuple[str, Figure]] = []  # the most telling first
    wanted += [(study.part.name, figure) for study in done for figure in by_number(study.results, study.ranking)]
    wanted += [(name, figure) for name, some in learning.items() for figure in some[:1]]
    wanted += [(widest.part.name, figure) for figure in growth[widest.part.name]] if widest is not None else []
    wanted += [(study.part.name, figure) for study in done for figure in courses(study.results)]
    wanted += [(name, figure) for name, some in against.items() for figure in some]
    wanted += [(study.part.name, standings(study.results, study.ranking)) for study in done]
    rest = [throughput(study.results) for study in done]
    rest += [figure for some in (learning, growth) for each in some.values() for figure in each]
    seen = {figure.name for figure in lead}
    if any(figure.kind == "bars" for figure in lead):  # the same scores
        seen |= {study.results.figure_name("standings") for study in done}
    own: dict[str, list[Figure]] = {study.part.name: [] for study in studies}
    more: list[Figure] = []
    for name, figure in wanted:
        if figure.name in seen or not figure.drawable:
            continue
        seen.add(figure.name)
        inside = len(lead) + sum(map(len, own.values())) < MOST
        (own[name] if inside else more).append(figure)
    for figure in rest:
        if figure.name not in seen and figure.drawable:
            seen.add(figure.name)
            more.append(figure)
    return lead, list(own.values()), more


def as_dict(content: Content) -> dict[str, Any]:
    """For `report.json`: everything, the figures' numbers and the cells' texts included."""
    return {
        "title": content.title,
        "question": content.question,
        "verdict": list(content.verdict),
        "missing": list(content.missing),
        "lead": [figure.as_dict() for figure in content.lead],
        "parts": [_part_dict(part) for part in content.parts],
        "more": [figure.as_dict() for figure in content.more],
        "models": [model._asdict() for model in content.models],
        "facts": dict(content.facts),
        "command": content.command,
    }


def _part_dict(part: PartContent) -> dict[str, Any]:
    def table(given: Table | None) -> dict[str, Any] | None:
        return None if given is None else given.as_dict()

    settings = part.settings
    changed = {
        **{name: table(getattr(part, name)) for name in ("table", "search", "record", "trials", "failures")},
        "also": list(part.also),
        "choices": None if part.choices is None else {**part.choices.table.as_dict(), "said": part.choices.said},
        "figures": [figure.as_dict() for figure in part.figures],
        "samples": [{**sample._asdict(), "text": sample.text} for sample in part.samples],
        "answers": [answer._asdict() for answer in part.answers],
        "readings": [{**reading._asdict(), "bits_per_character": reading.per_character()} for reading in part.readings],
        "disagreements": [disagreement._asdict() for disagreement in part.disagreements],
        "missing_text": list(part.missing_text),
        "settings": None if settings is None else {"shared": settings.shared, "table": table(settings.table)},
    }
    table_of_part = {**part._asdict(), **changed}
    return {"surprise" if name == "readings" else name: value for name, value in table_of_part.items()}


# -------------------------------------------------------------------- sentences


def _missing(study: _Study) -> list[str]:
    """Seeds that have not finished; the advice at the end is given once by each study."""
    before = "" if study.results.alone else f"{study.part.name}, "
    return [said if said.startswith("Run the command") else f"{before}{said}" for said in study.results.missing()]


def _noisy(ranked: Ranking) -> str:
    """The tests pool the variance of all entries: a few that vary far more than the rest make it large."""
    known = {standing.entry: standing.deviation for standing in ranked.standings if standing.deviation}
    if len(known) < 3:
        return ""
    usual = median(known.values())
    noisy = [name for name, deviation in known.items() if deviation > _NOISY * usual]
    if not noisy:
        return ""
    return (
        f"{listed([*map(named, noisy)])} {'varies' if len(noisy) == 1 else 'vary'} over {_NOISY:g} times more between "
        "seeds than the median model; because variance is pooled, this hides some real differences."
    )


def _disagreement(apart: Sequence[Disagreement]) -> str:
    if not apart:
        return "At least two models have to read the same text."
    first = apart[0]
    low, high = (plain(first.bits[name]) for name in (first.expected_by, first.surprised))
    return (
        f"The largest difference is {plain(first.gap)} bits, at {alone(first.piece)!r}: {named(first.expected_by)} "
        f"needs {low} bits, {named(first.surprised)} {high}."
    )


def _searched(study: StudySpec, solved: Sequence[Entry]) -> str:
    space = "; ".join(f"{path}: {', '.join(map(str, values))}" for path, values in study.search.space.items())
    if study.record:
        entries = {trial.entry for trial in study.record}
        each = {sum(trial.entry == entry for trial in study.record) for entry in entries}
        many = f"{min(each)}" if len(each) == 1 else f"{min(each)} to {max(each)}"
        values = f", over the same values ({space})" if space else ""
        said = (
            f"Settings were chosen by an equal search that was run once and is recorded with the study: {many} trials "
            f"for each of {len(entries)} models{values}, on a separate seed. {mismatch(study, solved)}"
        )
        return said.strip()
    if study.search.trials == 1:
        return "No search: every entry ran with its settings as written."
    return (
        f"Every entry had the same {study.search.trials} search trials on a separate seed, over the same values "
        f"({space}); its best settings were then run on all seeds."
    )


def _facts(studies: Sequence[_Study], environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = []
    for part, results, _ in studies:
        before = "" if results.alone else f"{part.name}: "
        done = sum(len(runs) for runs in results.final.values())
        facts += [
            (f"{before}held equal", held_equal(results, part.entries)),
            (
                f"{before}trials",
                f"{done} of {len(results.order) * part.study.seeds} finished, {_seeds(part.study.seeds)} each",
            ),
            (f"{before}data", ", ".join(sorted({entry.data for entry in part.entries})) or "not recorded"),
        ]
        if results.unmatched:
            facts.append((f"{before}not size-matched", ", ".join(sorted(results.unmatched))))
    facts.append(("corpus", _corpus(environment)))
    return [*facts, *((name, str(environment[name])) for name in _ABOUT_MACHINE if name in environment)]


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _corpus(environment: Mapping[str, Any]) -> str:
    corpus = environment.get("corpus", environment.get("data"))
    if not isinstance(corpus, Mapping):
        return str(corpus) if corpus is not None else "not recorded"
    return ", ".join(f"{str(name).replace('_', ' ')} {_number(value)}" for name, value in corpus.items())


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _environment(study: _Study) -> dict[str, Any]:
    """What the first trial that has one recorded of its machine."""
    for runs in study.results.final.values():
        for run in runs:
            path = study.part.folder / "trials" / run.key / "run" / "environment.json"
            try:
                facts = from_json(read_small(path))
            except (OSError, ValueError):
                continue
            if isinstance(facts, dict):
                return facts
    return {}


def _command(environment: Mapping[str, Any]) -> str | None:
    words = environment.get("command")
    return shlex.join(map(str, words)) if isinstance(words, list) and "compare" in words else None

"""All trials of a study: the search first, the same for every entry, then every seed with what it found."""

import hashlib
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from statewise.comparison.budget import Entry, Wanted, solve_entry, wanted_amounts
from statewise.comparison.search import with_recorded
from statewise.comparison.study import changed, spec_of
from statewise.comparison.study_data import Opener
from statewise.comparison.trial import COSTS, Found, Phase, Trial, trial_key
from statewise.specs import (
    AnyRunSpec,
    EntrySpec,
    StudySpec,
    Tried,
    UserError,
    nearest,
    option,
)
from statewise.tasks import compared_data, find_run, metric_names, metric_of, metric_tables, read_spec
from statewise.training import (
    Parallel,
    judge_of,
    pick_device,
    refuse_what_does_not_fit,
    refuse_what_is_never_captured,
)

AS_WRITTEN = -1  # in the place of the number of a try
_SAMPLE_SEED = 0
_SEARCH_SEED = 1_000_000  # that no final trial has
_ROOM = 25  # per cent by which a budget of parameters may grow on other data
_NAMED = 3  # files that a title names
# What stands above a training does not decide its result.
_ABOVE = ("cli", "lab", "serving", "comparison", "inspection")

Settings = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What is to be run. The search is on a seed that no final trial has, so that luck is not chosen twice."""

    study: StudySpec
    entries: list[Entry]
    search_trials: list[Trial]
    tried: dict[str, list[Settings]]  # of each entry, in order; none where nothing is searched
    solved: dict[tuple[str, int], Entry]  # of each entry, as written and at each of its tries

    @property
    def search_seed(self) -> int:
        return _SEARCH_SEED

    def final_trials(self, runs: Sequence[Found] = ()) -> list[Trial]:
        """Every seed of every entry, with the settings that did best in the search.

        An entry whose search has no result, because every try failed, is run as it is written.
        """
        chosen = {entry.name: self._best(entry.name, runs) for entry in self.entries}
        return [
            self.trial(name, AS_WRITTEN if index is None else index, seed, "final")
            for seed in range(self.study.seeds)
            for name, index in chosen.items()
        ]

    def search_log(self, runs: Sequence[Found]) -> list[Tried]:
        """Every try of every entry; what did not end in a number has no metric."""
        if not self.search_trials:
            return []
        return [
            Tried(entry=name, settings=settings, metric=self._figure(name, index, runs))
            for name, tries in self.tried.items()
            for index, settings in enumerate(tries)
        ]

    def _best(self, name: str, runs: Sequence[Found]) -> int | None:
        return self.study.best([self._figure(name, index, runs) for index in range(len(self.tried[name]))])

    def _figure(self, name: str, index: int, runs: Sequence[Found]) -> float | None:
        entry = self.solved[name, index]
        key = self.trial(name, index, self.search_seed, "search").key
        for trial in runs:
            if trial.key == key:
                figure = _searched_figure(entry.spec, trial, self.study)
                return figure if figure is not None and math.isfinite(figure) else None
        return None

    def trial(self, name: str, index: int, seed: int, phase: Phase) -> Trial:
        """One training of an entry at one of its tries. Its paths mean the same from every folder."""
        entry = self.solved[name, index]
        spec = entry.spec.model_copy(update={"seed": seed}).absolute()
        searched = {} if index == AS_WRITTEN else self.tried[name][index]
        key = trial_key(spec, data=entry.data, code=code_version())
        return Trial(name, seed, phase, spec, key, {**searched, **entry.solved}, entry.flops_per_token)


def plan(study: StudySpec, *, data: str | Path | Sequence[str] | None = None, opener: Opener | None = None) -> Plan:
    """Solve every entry and lay out its trials. `data`: what to learn from, in the place of the study's own."""
    opener = opener or Opener()
    if data is not None:
        names = [str(data)] if isinstance(data, str | Path) else [str(path) for path in data]
        study = _on_other_data(study, names, opener)
    study = with_recorded(study)
    searching = study.search.trials > 1 and not study.record
    specs = {entry.name: spec_of(study, entry) for entry in study.entry}
    _refuse_metric(study, next(iter(specs.values())))
    _refuse_unlike(study, specs)
    wanted = wanted_amounts(study, opener)
    solved: dict[tuple[str, int], Entry] = {}
    tried: dict[str, list[Settings]] = {}
    for entry in study.entry:
        solved[entry.name, AS_WRITTEN] = solve_entry(study, entry, opener=opener, wanted=wanted)
        tried[entry.name] = tries(study, entry) if searching else []
        for index, settings in enumerate(tried[entry.name]):
            # A rate does not change a size, but a depth does: the budget is met at every try.
            table = {**entry.settings, **settings}
            variant = entry.model_copy(update={"settings": table})
            solved[entry.name, index] = solve_entry(study, variant, opener=opener, wanted=wanted)
    entries = [solved[entry.name, AS_WRITTEN] for entry in study.entry]
    made = Plan(study, entries, [], tried, solved)
    _refuse_twins(made)
    for solution in solved.values():
        judge_of(opener(solution.spec).job, solution.spec.train)  # now, and not in every trial
    search = [
        made.trial(name, index, made.search_seed, "search")
        for index in range(max(map(len, tried.values())))
        for name in tried
        if index < len(tried[name])
    ]
    return Plan(study, entries, search, tried, solved)


def _on_other_data(study: StudySpec, names: list[str], opener: Opener) -> StudySpec:
    """With a larger vocabulary the same number of parameters may be too few for any width worth having: the budget
    becomes what the first entry, at the width it has on the study's own data, takes on these."""
    other = changed(study, {spec_of(study, study.entry[0]).main_data: names})
    told = ", ".join(Path(name).name for name in names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
    other = other.model_copy(update={"title": f"{study.title}: {told}"})
    sized = next((entry for entry in study.entry if entry.width is not None), None)
    if study.budget.kind != "parameters" or study.budget.amount is None or sized is None:
        return other
    amount = study.budget.amount
    try:
        own = solve_entry(study, sized, opener=opener, wanted=[Wanted("parameters", amount)])
    except UserError:  # its own data are not here, or were never meant to be
        pass
    else:
        spec = spec_of(other, sized, own.solved)
        amount = max(amount, opener(spec).parameters(spec))
    return other.model_copy(update={"budget": study.budget.model_copy(update={"amount": _met(other, amount, opener)})})


def _met(study: StudySpec, amount: float, opener: Opener) -> float:
    """The amount, or the next above it that every entry comes close to: some can only have few sizes."""
    for percent in range(_ROOM + 1):
        nearby = round(amount * (1 + percent / 100))
        try:
            for entry in study.entry:
                solve_entry(study, entry, opener=opener, wanted=[Wanted("parameters", nearby)])
        except UserError:
            continue
        return nearby
    return amount


def tries(study: StudySpec, entry: EntrySpec) -> list[Settings]:
    """The whole grid where it has no more points than `trials`, else a sample of it; the same for every entry.

    A setting that an entry does not have is left out for it.
    """
    if study.search.trials == 1:
        return []
    if not study.search.space:
        raise UserError(
            f"search.trials = {study.search.trials}, but search.space is empty",
            fix='say what is tried, for example space = { "train.lr" = [0.001, 0.003] }',
        )
    names = list(study.search.space)
    grid = [dict(zip(names, values)) for values in itertools.product(*study.search.space.values())]
    if len(grid) > study.search.trials:
        chosen = random.Random(_SAMPLE_SEED).sample(range(len(grid)), study.search.trials)
        grid = [grid[i] for i in sorted(chosen)]
    own = [name for name in names if _applies(study, entry, name)]
    points: list[Settings] = []
    for point in grid:
        kept = {name: point[name] for name in own}
        if kept and kept not in points:
            points.append(kept)
    return points


def _applies(study: StudySpec, entry: EntrySpec, name: str) -> bool:
    if spec_of(study, entry).learns == "counting" and name.startswith("train."):
        return False
    problems = []
    for value in study.search.space[name]:
        try:
            spec_of(study, entry, {name: value})
        except UserError as error:
            problems.append(error)
    if problems and not all(f"{name}: unknown key" in str(problem) for problem in problems):
        raise problems[0]
    return not problems


def _searched_figure(spec: AnyRunSpec, run: Found, study: StudySpec) -> float | None:
    """By validation: where the evaluation is on a test part, the best step of the curve."""
    if spec.tested:
        return (min if study.better == "lower" else max)((point.figure for point in run.curve), default=None)
    return run.figures.get(study.metric)


# -------------------------------------------------------------------- what cannot be compared


def _refuse_metric(study: StudySpec, spec: AnyRunSpec) -> None:
    known = [*metric_names(spec), *COSTS]
    if study.metric not in known:
        raise UserError(
            f"metric {study.metric!r} is not a metric of a {spec.task} run", fix=nearest(study.metric, known)
        )
    shown = [*metric_names(spec), *metric_tables(spec)]
    for name in study.also:
        if name not in shown:
            raise UserError(f"also: {name!r} is not a metric of a {spec.task} run", fix=nearest(name, shown))


def _refuse_unlike(study: StudySpec, specs: Mapping[str, AnyRunSpec]) -> None:
    """Metrics of different tasks, or on different data, are not ranked together."""
    (first, spec), *others = specs.items()
    question, tokens = compared_data(spec.task)
    for name, other in others:
        if other.task != spec.task:
            raise UserError(
                f"{first!r} is a {spec.task} run and {name!r} a {other.task} run: their metrics differ in kind",
                fix="make two studies of them",
            )
        for key in question + (tokens if metric_of(study.metric).per_token else ()):
            here, there = (getattr(data, key, None) for data in (spec.data, other.data))
            if here != there:
                fix = "give all entries the same data"
                if key in tokens:
                    fix = "use one tokenizer, or a metric that does not depend on it, such as bits_per_byte"
                raise UserError(
                    f"{first!r} has data.{key} = {here!r} and {name!r} has {there!r}: {study.metric} of the two is not "
                    "comparable",
                    fix=fix,
                )


def _refuse_twins(made: Plan) -> None:
    seen: dict[str, str] = {}
    for trial in made.final_trials():
        if (other := seen.setdefault(trial.key, trial.entry)) != trial.entry:
            raise UserError(f"entries {other!r} and {trial.entry!r} are the same run", fix="leave one out")


def refuse_large_entries(planned: Plan) -> None:
    """Those that this machine could not train: at equal bytes of state, a vector has an enormous matrix."""
    fix = f"lower budget.amount, or leave the entry out ({option('only')})"
    for entry in planned.entries:
        if entry.spec.learns == "gradient":
            where = pick_device(entry.spec.train.device)
            refuse_what_does_not_fit(entry.parameters, entry.spec.train, where, name=f"entry {entry.name!r}", fix=fix)
            refuse_what_is_never_captured(entry.spec.train, Parallel(device=where))


def entry_of_run(run: str, study: StudySpec) -> EntrySpec | None:
    """An entry with the model of a run, at the size that it has there; None where there is no such run."""
    folder = find_run(run)
    if not (folder / "run.toml").is_file():
        return None
    spec = read_spec(folder, mixers=study.mixers)
    if spec.task != study.base.get("task", "language_model"):
        raise UserError(f"{run!r} is a {spec.task} run, and the study has another task", fix="add a run of its task")
    model = spec.model_dump(mode="json", exclude_none=True)["model"]
    return EntrySpec(name=folder.name, settings={"model": model}, width=None)


@cache
def code_version() -> str:
    """A hash of all source that decides what a training gives, the package's version in it."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        if inside.parts[0] not in _ABOVE:
            digest.update(inside.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()

"""A published result, run again: from a recipe and the user's copy of the data to a verdict."""

import hashlib
import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from statewise.data import hub_name, read_bytes
from statewise.specs import (
    Goal,
    PublishedFigure,
    ReproductionSpec,
    UserError,
    as_overrides,
    either,
    load_published,
    make_spec,
    nearest,
    option,
    read_override,
    setting,
)
from statewise.tasks.dispatch import load, metric_names
from statewise.tasks.launch import train
from statewise.training import Display


class Verdict(NamedTuple):
    """`landed`: inside the expected interval. `reached`: as good as the published figure; `goal_reached`: as our goal.

    On other data than the recipe's (`other_data` are the settings that name some), or by another metric, all that the
    recipe knows of is None: its figures are of something else.
    """

    recipe: str
    metric: str
    found: float  # the mean over the seeds
    figures: tuple[float, ...]  # of each seed
    published: float | None
    source: str | None
    goal: float | None
    expected: tuple[float, float] | None
    expected_from: str | None  # what the interval rests on: seeds, or one run
    landed: bool | None
    reached: bool | None
    goal_reached: bool | None
    other_data: tuple[str, ...]
    changed: tuple[str, ...]  # settings that are not the recipe's
    evaluated: tuple[str, ...]  # files of `found`; none: what was held out
    note: str  # what the evaluation says below its table: of how many rows, and what was odd about them
    seconds: float
    runs: tuple[str, ...]  # a folder for each seed

    @property
    def deviation(self) -> float | None:
        """The standard deviation over the seeds."""
        return statistics.stdev(self.figures) if len(self.figures) > 1 else None


class Files(NamedTuple):
    """The file of each setting, those of the final evaluation, and which of all are not the recipe's own."""

    settings: dict[str, tuple[str, ...]]
    evaluated: tuple[str, ...]
    other: tuple[str, ...]


def reproduce(
    name: str,
    *,
    data: str | Path | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    test: Sequence[str] = (),
    metric: str | None = None,
    seeds: int = 1,
    out: str | Path | None = None,
    display: Display | None = None,
) -> Verdict:
    """Train the recipe of a published result on the files in `data`, evaluate it, and compare.

    A file that a setting names, or `test` for the final evaluation, is not searched for in `data`. `metric` is any of
    the task's metrics, in place of the recipe's. Of several `seeds`, counted from the recipe's, the mean is compared.
    """
    table, reproduction = load_published(name)
    metric = metric or reproduction.metric
    settings = as_overrides(settings)
    given = dict(map(read_override, settings))
    files = find_files(reproduction, None if data is None else Path(data), given=given, test=test)
    elsewhere = reproduction.elsewhere if files.other else {}
    own = {**elsewhere, **files.settings}
    began = time.monotonic()
    said = [f"{path}={json.dumps(value, ensure_ascii=False)}" for path, value in own.items()]
    spec = make_spec(table, [*said, *settings], source=f"recipe {name}")
    if metric not in metric_names(spec):
        raise UserError(f"{metric!r} is not a metric of a {spec.task} run", fix=nearest(metric, metric_names(spec)))
    figures, runs, note = [], [], ""
    for seed in range(spec.seed, spec.seed + seeds):
        folder = out if out is None or seeds == 1 else f"{out}-seed{seed}"
        trained = train(spec.model_copy(update={"seed": seed}), out=folder, display=display)
        evaluation = load(trained.path).evaluate([Path(name) for name in files.evaluated] or None)
        figure = evaluation._asdict()[metric]
        if not isinstance(figure, float):
            raise UserError(
                f"this evaluation has no {metric}: it does not apply to these data",
                fix=f"see what it has: statewise evaluate {trained.path}",
            )
        figures.append(figure)
        runs.append(str(trained.path))
        note = evaluation.report(name).note
    changed = (
        *(f"{path}={value}" for path, value in elsewhere.items() if path not in given),
        *(f"{path}={value}" for path, value in given.items() if path not in reproduction.files),
    )
    return judge(
        name,
        reproduction,
        figures,
        metric=metric,
        other_data=files.other,
        changed=changed,
        evaluated=files.evaluated,
        note=note,
        seconds=time.monotonic() - began,
        runs=tuple(runs),
    )


def judge(
    name: str,
    reproduction: ReproductionSpec,
    figures: Sequence[float],
    *,
    metric: str | None = None,
    other_data: tuple[str, ...] = (),
    changed: tuple[str, ...] = (),
    evaluated: tuple[str, ...] = (),
    note: str = "",
    seconds: float,
    runs: tuple[str, ...],
) -> Verdict:
    figure = statistics.fmean(figures)
    comparable = not other_data and metric in (None, reproduction.metric)
    published, goal, expected = reproduction.published, reproduction.goal, reproduction.interval
    if not comparable:
        published = goal = expected = None

    def reaches(wanted: PublishedFigure | Goal | None) -> bool | None:
        if wanted is None:
            return None
        return math.isfinite(figure) and reproduction.reaches(figure, wanted.figure)

    return Verdict(
        recipe=name,
        metric=metric or reproduction.metric,
        found=figure,
        figures=tuple(figures),
        runs=runs,
        seconds=seconds,
        published=None if published is None else published.figure,
        source=None if published is None else published.source,
        goal=None if goal is None else goal.figure,
        expected=expected,
        expected_from=None if expected is None else reproduction.expected_from,
        landed=None if expected is None else expected[0] <= figure <= expected[1],
        reached=reaches(published),
        goal_reached=reaches(goal),
        other_data=other_data,
        changed=changed,
        evaluated=evaluated,
        note=note,
    )


# -------------------------------------------------------------------- files


class _Wanted(NamedTuple):
    """A file that is searched for in the folder: for a setting, or (None) for the final evaluation."""

    setting: str | None
    patterns: Sequence[str]

    @property
    def named(self) -> str:
        return self.setting or "the final evaluation"


def find_files(
    reproduction: ReproductionSpec, folder: Path | None, *, given: Mapping[str, Any], test: Sequence[str] = ()
) -> Files:
    """What the settings name, and the rest as the recipe's patterns find it in the folder."""
    every = [_Wanted(setting, patterns) for setting, patterns in reproduction.files.items()]
    last = () if test else tuple(_Wanted(None, patterns) for patterns in reproduction.evaluate)
    wanted = [*(slot for slot in every if slot.setting not in given), *last]
    if folder is not None and folder.is_file():
        _refuse_one_file(folder, wanted)
    named = {slot.setting: _listed(given[slot.setting]) for slot in every if slot.setting in given and slot.setting}
    _refuse_other_roles(folder, every, named, wanted)
    found = _find(folder, wanted)
    _refuse_one_for_two(wanted, found)
    settings: dict[str, tuple[str, ...]] = {slot.setting: (path,) for slot, path in zip(wanted, found) if slot.setting}
    evaluated = tuple(test) or tuple(found[len(settings) :])
    # Known are sums of the files in their order: a file that stands in the place of another is other data.
    known = [*reproduction.sha256]
    other = []
    for place, path in enumerate(reproduction.files):
        paths = settings.get(path) or named[path]
        # To name nothing is to take something else: a share of the training file in place of the development set.
        if _differ(paths, known[place : place + 1] or known) or not paths:
            other.append(path)
    rest = known[len(reproduction.files) :]
    if _differ(evaluated, known) or (len(rest) == len(evaluated) and any(map(_differs, evaluated, rest))):
        other.append("test")
    return Files(settings, evaluated, tuple(other))


def _listed(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)


def _refuse_one_file(file: Path, wanted: Sequence[_Wanted]) -> None:
    """A file is enough where all that is needed are arrays of one."""
    names = {_name_and_arrays(patterns[0])[0] for patterns in (slot.patterns for slot in wanted)}
    if len(names) > 1:
        raise UserError(
            f"{str(file)!r} is one file, but the recipe needs {len(names)}: {', '.join(sorted(names))}",
            fix=f"name the folder that holds them, or each file: {_by_hand(wanted)}",
        )


def _refuse_other_roles(
    folder: Path | None, every: Sequence[_Wanted], named: Mapping[str, tuple[str, ...]], wanted: Sequence[_Wanted]
) -> None:
    """Sources where the recipe has targets turn its direction, and what it finds by itself goes the wrong way."""
    if folder is None or not folder.is_dir() or not wanted:
        return
    for path, files in named.items():
        for slot in every:
            taken = [match.resolve() for match in _matching(folder, slot.patterns)[0]]
            if slot.setting != path and len(taken) == 1 and taken[0] in [Path(file).resolve() for file in files]:
                raise UserError(
                    f"{path} names {files[0]!r}, which this recipe takes for {slot.setting}; the other files that it "
                    f"finds in {str(folder)!r} do not fit then",
                    fix=f"name them too: {_by_hand(wanted)}",
                )


def _find(folder: Path | None, wanted: Sequence[_Wanted]) -> list[str]:
    """For each the one file that its first fitting pattern names; `file.npz:x:y` names arrays in it."""
    if not wanted:
        return []
    if folder is None:
        raise UserError(
            f"no file is named for {', '.join(dict.fromkeys(slot.named for slot in wanted))}",
            fix=f"name the folder that holds the data, {option('data', 'DIR')}, or each file: {_by_hand(wanted)}",
        )
    if folder.is_file():
        return [f"{folder}{_name_and_arrays(slot.patterns[0])[1]}" for slot in wanted]
    if not folder.is_dir():
        raise UserError(f"{str(folder)!r} is not a folder", fix="name the folder that holds the data")
    found, missing, why = [], [], []
    for slot in wanted:
        matching, arrays = _matching(folder, slot.patterns)
        found += [f"{path}{arrays}" for path in matching]
        if len(matching) != 1:
            like = repr(_name_and_arrays(slot.patterns[0])[0]) + (" or the like" if len(slot.patterns) > 1 else "")
            many = " and ".join(path.name for path in matching[:4]) + (" and others" if len(matching) > 4 else "")
            why.append(f"{many} all fit {slot.named}" if matching else f"nothing is called {like}, for {slot.named}")
            missing.append(slot)
    if missing:
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:12]) or "nothing"
        raise UserError(
            f"in {str(folder)!r} {'; '.join(why)}. It holds {there}",
            fix=f"rename what is there, or name it: {_by_hand(missing)}",
        )
    return found


def _refuse_one_for_two(wanted: Sequence[_Wanted], found: Sequence[str]) -> None:
    """Patterns are wide; a name may fit those of the sources and those of the targets."""
    taken: dict[str, str] = {}
    for slot, path in zip(wanted, found):
        if slot.setting is not None and (before := taken.setdefault(path, slot.setting)) != slot.setting:
            raise UserError(
                f"{path!r} was found for {before} and for {slot.setting}",
                fix=f"name both: {setting({before: 'FILE', slot.setting: 'FILE'})}",
            )


def _by_hand(wanted: Sequence[_Wanted]) -> str:
    """The options that name these files, and what else may be given there."""
    paths = [slot.setting for slot in wanted if slot.setting]
    tests = len(wanted) - len(paths)
    said = setting(dict.fromkeys(paths, "FILE")) if paths else ""
    if tests:
        named = either(" ".join(["--test FILE"] * tests), f"test={['FILE'] * tests}")
        said += f" {named}" if said else named
    for path in paths:
        if path.endswith("validation") and f"{path}_target" not in paths:
            said += f"; or {setting(path, [])} to hold out a share"
        if path == "data.text":
            said += f"; {setting(path, 'DIR')} reads every file of a folder"
    return said


def _matching(folder: Path, patterns: Sequence[str]) -> tuple[list[Path], str]:
    """What the first pattern that fits anything fits, and the arrays it names; `name/` is a folder."""
    for pattern in patterns:
        name, arrays = _name_and_arrays(pattern)
        matches = folder.glob(name.removesuffix("/"))
        matching = sorted(path for path in matches if (path.is_dir() if name.endswith("/") else path.is_file()))
        if matching:
            return matching, arrays
    return [], ""


def _name_and_arrays(pattern: str) -> tuple[str, str]:
    name, colon, arrays = pattern.partition(":")
    return name, f"{colon}{arrays}"


def _differ(paths: Sequence[str], known: Sequence[str]) -> bool:
    """Whether one of the files differs from those of the published metric; False where their checksums are unknown."""
    return bool(known) and not all(_sha256(path).startswith(tuple(known)) for path in paths)


def _differs(path: str, known: str) -> bool:
    return _differ((path,), (known,))


def _sha256(path: str) -> str:
    """Of a file's bytes, unpacked. What is no file has none."""
    file = Path(path if Path(path).exists() else path.partition(".npz:")[0] + ".npz" if ".npz:" in path else path)
    return "" if hub_name(path) is not None or file.is_dir() else hashlib.sha256(read_bytes(file)).hexdigest()

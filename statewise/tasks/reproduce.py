"""A published result, run again: from a recipe and the user's copy of the data to a verdict."""

import hashlib
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from statewise.data.anywhere import hub_name
from statewise.data.lines import read_bytes
from statewise.specs import PublishedSpec, UserError, load_published, make_spec, nearest
from statewise.specs.parse import read_override
from statewise.tasks.dispatch import load
from statewise.tasks.launch import train
from statewise.training import Display


class Verdict(NamedTuple):
    """`landed`: inside the interval that our own runs gave. `reached`: as good as the published figure.

    Neither is said of other data than the figure's own: `other_data` are the settings that name some.
    """

    recipe: str
    metric: str
    found: float
    published: float
    source: str
    expected: tuple[float, float] | None
    landed: bool | None
    reached: bool | None
    other_data: tuple[str, ...]
    changed: tuple[str, ...]  # settings that are not the recipe's
    evaluated: tuple[str, ...]  # files of `found`; none: what was held out
    note: str  # what the evaluation says below its table: of how many rows, and what was odd about them
    seconds: float
    run: str


class Files(NamedTuple):
    """The file of each setting, those of the final figure, and which of all are not the figure's own."""

    settings: dict[str, tuple[str, ...]]
    evaluated: tuple[str, ...]
    other: tuple[str, ...]


def reproduce(
    name: str,
    *,
    data: str | Path | None = None,
    settings: Sequence[str] = (),
    test: Sequence[str] = (),
    out: str | Path | None = None,
    display: Display | None = None,
) -> Verdict:
    """Train the published recipe on the files in `data`, evaluate it, and compare.

    A file that a setting names, or `test` for the final figure, is not searched for in `data`.
    """
    table, published = load_published(name)
    given = dict(map(read_override, settings))
    files = find_files(published, None if data is None else Path(data), given=given, test=test)
    elsewhere = published.elsewhere if files.other else {}
    own = {**elsewhere, **files.settings}
    began = time.monotonic()
    said = [f"{path}={json.dumps(value, ensure_ascii=False)}" for path, value in own.items()]
    spec = make_spec(table, [*said, *settings], source=f"recipe {name}")
    trained = train(spec, out=out, display=display)
    evaluation = load(trained.path).evaluate([Path(name) for name in files.evaluated] or None)
    figures = evaluation._asdict()
    found = figures.get(published.metric)
    if not isinstance(found, float):
        raise UserError(f"{published.metric!r} is not a figure of this task", fix=nearest(published.metric, figures))
    changed = (
        *(f"{path}={value}" for path, value in elsewhere.items() if path not in given),
        *(f"{path}={value}" for path, value in given.items() if path not in published.files),
    )
    return judge(
        name,
        published,
        found,
        other_data=files.other,
        changed=changed,
        evaluated=files.evaluated,
        note=evaluation.report(name).note,
        seconds=time.monotonic() - began,
        run=str(trained.path),
    )


def judge(
    name: str,
    published: PublishedSpec,
    found: float,
    *,
    other_data: tuple[str, ...] = (),
    changed: tuple[str, ...] = (),
    evaluated: tuple[str, ...] = (),
    note: str = "",
    seconds: float,
    run: str,
) -> Verdict:
    sign = 1 if published.better == "higher" else -1
    landed = reached = None
    if not other_data:
        reached = math.isfinite(found) and sign * found >= sign * published.figure
        if published.expected is not None:
            low, high = published.expected
            landed = low <= found <= high
    return Verdict(
        recipe=name,
        metric=published.metric,
        found=found,
        published=published.figure,
        source=published.source,
        expected=published.expected,
        landed=landed,
        reached=reached,
        other_data=other_data,
        changed=changed,
        evaluated=evaluated,
        note=note,
        seconds=seconds,
        run=run,
    )


# -------------------------------------------------------------------- files


class _Wanted(NamedTuple):
    """A file that is searched for in the folder: for a setting, or (None) for the final figure."""

    setting: str | None
    patterns: Sequence[str]

    @property
    def named(self) -> str:
        return self.setting or "the final figure"

    @property
    def by_hand(self) -> str:
        return "--test FILE" if self.setting is None else f"--set {self.setting}=FILE"


def find_files(
    published: PublishedSpec, folder: Path | None, *, given: Mapping[str, Any], test: Sequence[str] = ()
) -> Files:
    """What the settings name, and the rest as the recipe's patterns find it in the folder."""
    every = [_Wanted(setting, patterns) for setting, patterns in published.files.items()]
    last = () if test else tuple(_Wanted(None, patterns) for patterns in published.evaluate)
    wanted = [*(one for one in every if one.setting not in given), *last]
    if folder is not None and folder.is_file():
        _refuse_one_file(folder, [one.patterns for one in wanted])
    named = {one.setting: _listed(given[one.setting]) for one in every if one.setting in given and one.setting}
    _refuse_other_roles(folder, every, named, wanted)
    found = _find(folder, wanted)
    _refuse_one_for_two(wanted, found)
    settings: dict[str, tuple[str, ...]] = {one.setting: (path,) for one, path in zip(wanted, found) if one.setting}
    evaluated = tuple(test) or tuple(found[len(settings) :])
    # Known are sums of the files in their order: a file that stands in the place of another is other data.
    known = [*published.sha256]
    other = []
    for place, setting in enumerate(published.files):
        paths = settings.get(setting) or named[setting]
        # To name nothing is to take something else: a share of the training file in place of the development set.
        if _differ(paths, known[place : place + 1] or known) or not paths:
            other.append(setting)
    rest = known[len(published.files) :]
    if _differ(evaluated, known) or (len(rest) == len(evaluated) and any(map(_differs, evaluated, rest))):
        other.append("test")
    return Files(settings, evaluated, tuple(other))


def _listed(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)


def _refuse_one_file(file: Path, needed: Iterable[Sequence[str]]) -> None:
    """A file is enough where all that is needed are arrays of one."""
    names = {_name_and_arrays(patterns[0])[0] for patterns in needed}
    if len(names) > 1:
        raise UserError(
            f"{str(file)!r} is one file, but the recipe needs {len(names)}: {', '.join(sorted(names))}",
            fix="name the folder that holds them, or each by --set, and those of the final figure by --test",
        )


def _refuse_other_roles(
    folder: Path | None, every: Sequence[_Wanted], named: Mapping[str, tuple[str, ...]], wanted: Sequence[_Wanted]
) -> None:
    """Sources where the recipe has targets turn its direction, and what it finds by itself goes the wrong way."""
    if folder is None or not folder.is_dir() or not wanted:
        return
    for setting, paths in named.items():
        for one in every:
            taken = [path.resolve() for path in _matching(folder, one.patterns)[0]]
            if one.setting != setting and len(taken) == 1 and taken[0] in [Path(path).resolve() for path in paths]:
                raise UserError(
                    f"{setting} names {paths[0]!r}, which this recipe takes for {one.setting}; the other files that it "
                    f"finds in {str(folder)!r} do not fit then",
                    fix=f"name them too: {_all_by_hand(wanted)}",
                )


def _find(folder: Path | None, wanted: Sequence[_Wanted]) -> list[str]:
    """For each the one file that its first fitting pattern names; `file.npz:x:y` names arrays in it."""
    if not wanted:
        return []
    if folder is None:
        raise UserError(
            f"no file is named for {', '.join(dict.fromkeys(one.named for one in wanted))}",
            fix=f"name the folder that holds the data, --data DIR, or the file: {_all_by_hand(wanted)}",
        )
    if folder.is_file():
        return [f"{folder}{_name_and_arrays(one.patterns[0])[1]}" for one in wanted]
    if not folder.is_dir():
        raise UserError(f"{str(folder)!r} is not a folder", fix="name the folder that holds the data")
    found, missing, why = [], [], []
    for one in wanted:
        matching, arrays = _matching(folder, one.patterns)
        found += [f"{path}{arrays}" for path in matching]
        if len(matching) != 1:
            like = repr(_name_and_arrays(one.patterns[0])[0]) + (" or the like" if len(one.patterns) > 1 else "")
            many = " and ".join(path.name for path in matching[:4]) + (" and others" if len(matching) > 4 else "")
            why.append(f"{many} all fit {one.named}" if matching else f"nothing is called {like}, for {one.named}")
            missing.append(one)
    if missing:
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:12]) or "nothing"
        raise UserError(
            f"in {str(folder)!r} {'; '.join(why)}. It holds {there}",
            fix=f"rename what is there, or name it: {_all_by_hand(missing)}",
        )
    return found


def _refuse_one_for_two(wanted: Sequence[_Wanted], found: Sequence[str]) -> None:
    """Patterns are wide; a name may fit those of the sources and those of the targets."""
    taken: dict[str, str] = {}
    for one, path in zip(wanted, found):
        if one.setting is not None and (before := taken.setdefault(path, one.setting)) != one.setting:
            raise UserError(
                f"{path!r} was found for {before} and for {one.setting}",
                fix=f"name both: --set {before}=FILE --set {one.setting}=FILE",
            )


def _all_by_hand(wanted: Sequence[_Wanted]) -> str:
    """What to write, and what else may be written there."""
    said = " ".join(one.by_hand for one in wanted)
    settings = [one.setting for one in wanted if one.setting]
    for setting in settings:
        if setting.endswith("validation") and f"{setting}_target" not in settings:
            said += f"; or --set {setting}=[] to hold out a share"
        if setting == "data.text":
            said += f"; --set {setting}=DIR takes every file of a folder"
    return said


def _matching(folder: Path, patterns: Sequence[str]) -> tuple[list[Path], str]:
    """What the first pattern that fits anything fits, and the arrays it names; `name/` is a folder."""
    for pattern in patterns:
        name, arrays = _name_and_arrays(pattern)
        found = folder.glob(name.removesuffix("/"))
        matching = sorted(path for path in found if (path.is_dir() if name.endswith("/") else path.is_file()))
        if matching:
            return matching, arrays
    return [], ""


def _name_and_arrays(pattern: str) -> tuple[str, str]:
    name, colon, arrays = pattern.partition(":")
    return name, f"{colon}{arrays}"


def _differ(paths: Sequence[str], known: Sequence[str]) -> bool:
    """Whether one of the files is none of those that the figure is of; without their sums nobody can tell."""
    return bool(known) and not all(_sha256(path).startswith(tuple(known)) for path in paths)


def _differs(path: str, known: str) -> bool:
    return _differ((path,), (known,))


def _sha256(path: str) -> str:
    """Of a file's bytes, unpacked. What is no file has none."""
    file = Path(path if Path(path).exists() else path.partition(".npz:")[0] + ".npz" if ".npz:" in path else path)
    return "" if hub_name(path) is not None or file.is_dir() else hashlib.sha256(read_bytes(file)).hexdigest()

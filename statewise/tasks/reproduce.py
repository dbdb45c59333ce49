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
    evaluation = load(trained.path).evaluate(list(files.evaluated) or None)
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


def find_files(
    published: PublishedSpec, folder: Path | None, *, given: Mapping[str, Any], test: Sequence[str] = ()
) -> Files:
    """What the settings name, and the rest as the recipe's patterns find it in the folder."""
    wanted = {setting: patterns for setting, patterns in published.files.items() if setting not in given}
    evaluated = () if test else published.evaluate
    if folder is not None and folder.is_file():
        _refuse_one_file(folder, [*wanted.values(), *evaluated])
    settings: dict[str, tuple[str, ...]] = {
        setting: (_found(folder, patterns, setting),) for setting, patterns in wanted.items()
    }
    named = {setting: _listed(given[setting]) for setting in published.files if setting in given}
    last = tuple(test) or tuple(_found(folder, patterns, None) for patterns in evaluated)
    known = published.sha256
    # To name nothing is to take something else: a share of the training file in place of the development set.
    other = tuple(name for name, paths in {**settings, **named}.items() if _differ(paths, known) or not paths)
    return Files(settings, last, (*other, "test") if _differ(last, known) else other)


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


def _found(folder: Path | None, patterns: Sequence[str], setting: str | None) -> str:
    """The one file of the folder that the first fitting pattern names; `file.npz:x:y` names arrays in it."""
    by_hand = "--test FILE" if setting is None else f"--set {setting}=FILE"
    if folder is None:
        raise UserError(
            f"no file is named for {setting or 'the final figure'}",
            fix=f"name the folder that holds the data, --data DIR, or the file: {by_hand}",
        )
    if folder.is_file():
        return f"{folder}{_name_and_arrays(patterns[0])[1]}"
    if not folder.is_dir():
        raise UserError(f"{str(folder)!r} is not a folder", fix="name the folder that holds the data")
    matching: list[Path] = []
    for pattern in patterns:
        name, arrays = _name_and_arrays(pattern)
        matching = sorted(path for path in folder.glob(name) if path.is_file())
        if len(matching) == 1:
            return f"{matching[0]}{arrays}"
        if matching:
            break
    if setting is not None and "validation" in setting:
        by_hand += f", or --set {setting}=[] to hold out a share"
    there = ", ".join(sorted(path.name for path in folder.iterdir())[:12]) or "nothing"
    many = f"{len(matching)} files" if matching else "no file"
    spelled = " or ".join(repr(_name_and_arrays(pattern)[0]) for pattern in patterns)
    raise UserError(
        f"{many} in {str(folder)!r} match {spelled}; it holds {there}", fix=f"rename the file, or name it: {by_hand}"
    )


def _name_and_arrays(pattern: str) -> tuple[str, str]:
    name, colon, arrays = pattern.partition(":")
    return name, f"{colon}{arrays}"


def _differ(paths: Sequence[str], known: Sequence[str]) -> bool:
    """Whether one of the files is none of those that the figure is of; without their sums nobody can tell."""
    return bool(known) and not all(_sha256(path).startswith(tuple(known)) for path in paths)


def _sha256(path: str) -> str:
    """Of a file's bytes, unpacked. What is no file has none."""
    file = Path(path if Path(path).exists() else path.partition(".npz:")[0] + ".npz" if ".npz:" in path else path)
    return "" if hub_name(path) is not None or file.is_dir() else hashlib.sha256(read_bytes(file)).hexdigest()

"""A published result, run again: from a recipe and the user's copy of the data to a verdict."""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from statewise.specs import PublishedSpec, UserError, load_published, make_spec, nearest
from statewise.tasks.dispatch import load
from statewise.tasks.launch import train
from statewise.training import Display


class Verdict(NamedTuple):
    """`landed`: inside the interval that our own runs gave. `reached`: as good as the published figure."""

    recipe: str
    metric: str
    found: float
    published: float
    source: str
    expected: tuple[float, float] | None
    landed: bool | None
    reached: bool
    seconds: float
    run: str


def reproduce(
    name: str,
    *,
    data: str | Path,
    settings: Sequence[str] = (),
    out: str | Path | None = None,
    display: Display | None = None,
) -> Verdict:
    """Train the published recipe on the files in `data`, evaluate it, and compare."""
    table, published = load_published(name)
    folder = Path(data)
    paths = [f"{setting}={json.dumps(_found(folder, pattern))}" for setting, pattern in published.files.items()]
    evaluated = [_found(folder, pattern) for pattern in published.evaluate]
    began = time.monotonic()
    spec = make_spec(table, [*paths, *settings], source=f"recipe {name}")
    trained = train(spec, out=out, display=display)
    figures = load(trained.path).evaluate(evaluated or None)._asdict()
    found = figures.get(published.metric)
    if not isinstance(found, float):
        raise UserError(f"{published.metric!r} is not a figure of this task", fix=nearest(published.metric, figures))
    return judge(name, published, found, seconds=time.monotonic() - began, run=str(trained.path))


def judge(name: str, published: PublishedSpec, found: float, *, seconds: float, run: str) -> Verdict:
    sign = 1 if published.better == "higher" else -1
    landed = None
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
        reached=math.isfinite(found) and sign * found >= sign * published.figure,
        seconds=seconds,
        run=run,
    )


def _found(folder: Path, pattern: str) -> str:
    """The one file of the folder that a pattern names; `file.npz:x:y` names arrays in it."""
    if folder.is_file():
        return str(folder)
    if not folder.is_dir():
        raise UserError(f"{str(folder)!r} is not a folder", fix="name the folder that holds the data")
    name, colon, arrays = pattern.partition(":")
    matching = sorted(path for path in folder.glob(name) if path.is_file())
    if len(matching) != 1:
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:12]) or "nothing"
        many = f"{len(matching)} files" if matching else "no file"
        raise UserError(
            f"{many} in {str(folder)!r} match {name!r}; it holds {there}",
            fix="rename the file, or name it with --set, for example --set data.train=FILE",
        )
    return f"{matching[0]}{colon}{arrays}"

"""A whole comparison in one call: a study, what it is run on, and the report that comes of it."""

import html
import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from statewise.comparison.engine import Ran, run
from statewise.comparison.plan import Plan, plan
from statewise.comparison.progress import Board
from statewise.comparison.ray_engine import run_on_ray
from statewise.comparison.report import write_report
from statewise.comparison.study import (
    as_table,
    entry_of,
    load_study,
    parse_study,
    read_added,
    scaled,
    spec_of,
    with_entries,
)
from statewise.models import AnyMixer, CustomMixer, classes_of, names_a_file, own_mixer, own_mixers
from statewise.models.custom import from_source
from statewise.specs import UserError, mixers_of
from statewise.specs.custom import snake
from statewise.specs.parse import with_settings
from statewise.specs.study import StudySpec
from statewise.training.device import pick_device
from statewise.training.memory import refuse_what_does_not_fit
from statewise.training.signals import Signals

_AMOUNTS = ("budget.amount", "budget.also.amount")
AnyStudy = str | Path | StudySpec | Mapping[str, Any]


@dataclass(frozen=True)
class Compared:
    """What came of a study. `report` is all of report.json; `stopped` is the signal that ended it early, or 0."""

    page: Path
    report: dict[str, Any]
    ran: Ran
    stopped: int

    @property
    def verdict(self) -> str:
        return " ".join(self.report["verdict"])

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each entry, the best first: numbers, and words where a column has words."""
        words = {column["name"] for column in self.report["table"]["columns"] if column["text"]}
        return [
            {name: cell["text"] if name in words else cell["value"] for name, cell in row.items()}
            for row in self.report["table"]["rows"]
        ]

    def __repr__(self) -> str:
        return f"Compared({str(self.page)!r}: {self.verdict})"

    def _repr_html_(self) -> str:
        columns = self.report["table"]["columns"]
        lines = [[column["title"] for column in columns]]
        lines += [[row[column["name"]]["text"] for column in columns] for row in self.report["table"]["rows"]]
        rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
        return f"<p>{html.escape(self.verdict)}</p><table>{rows}</table>"


def compare(
    study: AnyStudy = "lineage",
    *,
    data: str | Path | Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    minutes: float | None = None,
    only: Sequence[str] = (),
    add: Sequence[str] = (),
    mixers: AnyMixer | Sequence[AnyMixer] = (),
    out: str | Path | None = None,
    workers: int | None = None,
    threads: int = 1,
    static: bool = False,
    engine: Literal["local", "ray"] = "local",
    display: Board | None = None,
    command: str | None = None,
) -> Compared:
    """Run what is not yet done of a study, and write its report into `out` (default: `studies/NAME`).

    The study is a shipped one's name, a TOML file, a `StudySpec`, or a table of the same keys. `settings` are paths of
    the study, such as `base.train.lr`; `data` takes the place of its own; `command` is what reproduces the report.

    `mixers` are classes of your own, or the files they are in: each becomes an entry, unless an entry has it already.
    `add` may begin with such a file too: `add=["mine=ema.py model.options.decay=0.5"]`.
    """
    asked = changed_study(study, settings=settings or {}, minutes=minutes, only=only, add=add, mixers=mixers)
    folder = Path(out) if out is not None else Path("studies") / _name(study)
    with Signals() as signals:
        planned = plan(asked, data=data)
        if engine == "local":
            refuse_large_entries(planned)
        drive: Callable[..., Ran] = run_on_ray if engine == "ray" else run
        ran = drive(
            planned,
            folder=folder,
            workers=workers or one_each(planned),
            threads=threads,
            display=display,
            signals=signals,
        )
        files = {own.source.path for own in classes_of(asked.mixers) if own.source is not None}
        again = ["statewise", "compare", str(folder / "study.toml"), "--out", str(folder)]
        again += [word for file in sorted(files) for word in ("--mixer", file)]
        page = write_report(
            planned.study,
            planned.entries,
            ran.found,
            folder=folder,
            static=static,
            failures=ran.failed,
            command=command or shlex.join(again),
        )
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        return Compared(page, report, ran, signals.received)


def refuse_large_entries(planned: Plan) -> None:
    """Those that this machine could not train: at equal bytes of state, a vector has an enormous matrix."""
    fix = "lower budget.amount, or leave the entry out (--only)"
    for entry in planned.entries:
        if entry.spec.learns == "gradient":
            where = pick_device(entry.spec.train.device)
            refuse_what_does_not_fit(entry.parameters, entry.spec.train, where, name=f"entry {entry.name!r}", fix=fix)


def changed_study(
    study: AnyStudy,
    *,
    settings: Mapping[str, Any],
    minutes: float | None = None,
    only: Sequence[str] = (),
    add: Sequence[str] = (),
    mixers: AnyMixer | Sequence[AnyMixer] = (),
) -> StudySpec:
    """The study, read, with what is asked to be otherwise."""
    likes = [like for _, like, _ in map(read_added, add) if names_a_file(like)]
    added = {like: own_mixer(like) for like in likes}
    given = tuple(_for_workers(own) for own in own_mixers(mixers))
    every = tuple(dict.fromkeys([*given, *added.values()]))
    match study:
        case StudySpec():
            found = parse_study(as_table(study), source=f"study {study.title!r}", mixers=every)
        case Mapping():
            found = parse_study(study, mixers=every)
        case _:
            found = load_study(study, mixers=every)
    if settings:
        table = with_settings(as_table(found), settings)
        found = parse_study(table, source=f"study {found.title!r} with settings", mixers=every)
    if only or add:
        found = with_entries(found, only=only, add=add, own={**{own.name: own for own in given}, **added})
    named = {own for entry in found.entry for own in mixers_of(spec_of(found, entry))}
    new = tuple(entry_of(own) for own in given if own not in named)
    if new:
        found = parse_study(as_table(found.model_copy(update={"entry": (*found.entry, *new)})), mixers=every)
    if minutes is not None:
        amounts = {path: value for path, value in settings.items() if path in _AMOUNTS}
        table = with_settings(as_table(scaled(found, minutes)), amounts)  # what was said stands as it was
        found = parse_study(table, mixers=every)
    return found


def _for_workers(own: CustomMixer) -> CustomMixer:
    """The class as the processes of a study will have it: out of the text of its file."""
    if own.source is None:
        raise UserError(
            f"{own.name} cannot be sent to the processes of a study: it does not come from a file of its own",
            fix=f"write it into a file, and name that: mixers=['{snake(own.name)}.py']",
        )
    return from_source(own.source, own.name)


def one_each(planned: Plan) -> int:
    """A worker for each core, or for each GPU where these are used: more would share one, and its time."""
    wanted = planned.study.base.get("train", {}).get("device", "auto")
    if torch.cuda.is_available() and wanted != "cpu":
        return torch.cuda.device_count()
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _name(study: AnyStudy) -> str:
    """Of the folder."""
    if isinstance(study, str | Path):
        return Path(study).stem
    title = study.title if isinstance(study, StudySpec) else str(study.get("title", "study"))
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split()) or "study"

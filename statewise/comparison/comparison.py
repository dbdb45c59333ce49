"""A whole comparison in one call: a study or a story of several, what it is run on, and the report that comes of it."""

import html
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from statewise.comparison.engine import Ran, Work, run, wanted_device
from statewise.comparison.plan import Plan, entry_of_run, plan, refuse_large_entries
from statewise.comparison.progress import Board
from statewise.comparison.ray_engine import run_on_ray
from statewise.comparison.recall import gradient_map
from statewise.comparison.record import trial_folder
from statewise.comparison.report import Part, write_report
from statewise.comparison.search import write_record
from statewise.comparison.study import (
    AnyStudy,
    Chapter,
    Story,
    as_table,
    changed,
    entry_of,
    load_story,
    parse_study,
    read_added,
    scaled,
    spec_of,
    title_as_name,
    with_entries,
)
from statewise.data import Data, file_names, memory_file, stored_in
from statewise.disk import make_folder, write
from statewise.figures import Frame
from statewise.models import AnyMixer, CustomMixer, classes_of, from_source, names_a_file, own_mixer, own_mixers
from statewise.specs import (
    OwnMixer,
    StudySpec,
    UserError,
    dumps,
    from_json,
    mixers_of,
    nearest,
    option,
    read_small,
    snake,
    with_settings,
)
from statewise.tasks import Run, load
from statewise.training import Signals

_AMOUNTS = ("budget.amount", "budget.also.amount")


@dataclass(frozen=True)
class ComparedPart:
    """One study of a comparison. `report` is its part of report.json."""

    name: str
    report: dict[str, Any]
    ran: Ran

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each model, the best first: a dictionary of numbers and texts."""
        words = {column["name"] for column in self.report["table"]["columns"] if column["text"]}
        return [
            {name: cell["text"] if name in words else cell["value"] for name, cell in row.items()}
            for row in self.report["table"]["rows"]
        ]


@dataclass(frozen=True)
class Compared:
    """The result of `sw.compare`; a notebook shows its tables.

    `page` is the path of the report, `report` all of report.json, `parts` the studies it consists of, and `stopped` the
    signal that ended it early, or 0.

    >>> compared = sw.compare("two.toml", out="studies/two", workers=1, static=True)
    >>> compared.page
    PosixPath('studies/two/report.html')
    """

    page: Path
    report: dict[str, Any]
    parts: tuple[ComparedPart, ...]
    stopped: int

    @property
    def verdict(self) -> str:
        """The result in a few sentences.

        >>> "elman" in sw.compare("two.toml", out="studies/two", workers=1, static=True).verdict
        True
        """
        return " ".join(self.report["verdict"])

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each model, the best first: a dictionary of numbers and texts; of several studies, with its `part`.

        >>> compared = sw.compare("two.toml", out="studies/two", workers=1, static=True)
        >>> sorted(row["entry"] for row in compared.table)
        ['elman', 'gru']
        """
        if len(self.parts) == 1:
            return self.parts[0].table
        return [{"part": part.name, **row} for part in self.parts for row in part.table]

    @property
    def failed(self) -> int:
        """The number of trials that failed.

        >>> compared = sw.compare("two.toml", out="studies/two", workers=1, static=True)
        >>> compared.failed, compared.left
        (0, 0)
        """
        return sum(len(part.ran.failed) for part in self.parts)

    @property
    def left(self) -> int:
        """The number of trials that a signal left undone.

        >>> sw.compare("two.toml", out="studies/two", workers=1, static=True).left
        0
        """
        return sum(len(part.ran.left) for part in self.parts)

    def __repr__(self) -> str:
        return f"Compared({str(self.page)!r}: {self.verdict})"

    def _repr_html_(self) -> str:
        shown = [f"<p>{html.escape(self.verdict)}</p>"]
        for part in self.parts:
            columns = [column for column in part.report["table"]["columns"] if column["shown"]]
            lines = [[column["title"] for column in columns]]
            lines += [[row[column["name"]]["text"] for column in columns] for row in part.report["table"]["rows"]]
            rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
            shown.append(f"<p><b>{html.escape(part.report['title'])}</b></p><table>{rows}</table>")
        return "".join(shown)


def compare(
    study: AnyStudy = "lineage",
    *,
    data: Data | None = None,
    settings: Mapping[str, Any] | None = None,
    minutes: float | None = None,
    only: Sequence[str] = (),
    add: Sequence[str] = (),
    search: bool = False,
    mixers: AnyMixer | Sequence[AnyMixer] = (),
    out: str | Path | None = None,
    workers: int | None = None,
    threads: int = 1,
    static: bool = False,
    engine: Literal["local", "ray"] = "local",
    display: Board | None = None,
    command: str | None = None,
    live: Callable[[Mapping[str, Run]], Frame | None] | None = None,
) -> Compared:
    """Train several models under one budget and write a report into `out` (default: `studies/NAME`).

    `study` is the name of a shipped study, a TOML file, a `StudySpec`, or a table of the same keys. `data` (files, or
    what you hold in memory) replaces its data (the last study's, where there are several). `settings` replace settings:
    `{"base.train.lr": 0.01}`, or, of one of several studies, `{"prediction.base.train.lr": 0.01}`. `minutes` sets its
    time, `only` and `add` choose its models, and `search` runs the search again instead of using the recorded one.
    `mixers` are classes of your own, or the files they are in: each becomes an entry (of the last study, where there
    are several), unless an entry has it already. `add` may name such a file too: `["mine=ema.py model.depth=2"]`.
    Trials that are done are not run again. `workers` processes run at the same time, each with so many `threads`.
    `command` is what the report says it was made by. `live` shows one run of each entry in the report: with
    `sw.lab.frame`, a reader types and the models read along. Returns the table, the verdict and the path of the report.

    >>> compared = sw.compare("two.toml", out="studies/two", workers=1, static=True)
    >>> [row["entry"] for row in compared.table]
    [..., ...]
    """
    story = changed_story(
        study, settings=settings or {}, minutes=minutes, only=only, add=add, search=search, mixers=mixers
    )
    folder = Path(out) if out is not None else Path("studies") / _name(study)
    files, made = None if data is None else file_names(data), None
    if data is not None and files is None:
        last = story.chapters[-1]
        spec = spec_of(last.study, last.study.entry[0])
        made = memory_file(spec, data, training=True)
        last = last._replace(study=changed(last.study, made.changes(spec.data)))
        story = story._replace(chapters=(*story.chapters[:-1], last))
        files = [str(folder.absolute() / made.name)]
    with Signals() as signals, stored_in(made, folder, leads=True):
        plans = [
            plan(chapter.study, data=files if number == len(story.chapters) else None)
            for number, chapter in enumerate(story.chapters, start=1)
        ]
        if engine == "local":
            for planned in plans:
                refuse_large_entries(planned)
        works = [
            Work(planned, folder if story.alone else folder / chapter.name)
            for planned, chapter in zip(plans, story.chapters)
        ]
        for work in works:
            make_folder(work.folder, inside=folder)
        drive: Callable[..., list[Ran]] = run_on_ray if engine == "ray" else run
        rans = drive(works, workers=workers or one_each(plans), threads=threads, display=display, signals=signals)
        for (_, place), planned, ran in zip(works, plans, rans):
            if planned.search_trials:
                write_record(place / "search.json", planned.study, planned.entries, planned.search_log(ran.found))
        if not story.alone:
            write(folder / "study.toml", dumps(_kept(story)))
        again = ["statewise", "compare", str(folder / "study.toml"), "--out", str(folder)]
        again += [word for file in _mixer_files(story) for word in ("--mixer", file)]
        parts = [
            Part(chapter.name, planned.study, planned.entries, ran.found, ran.failed, work.folder)
            for chapter, planned, ran, work in zip(story.chapters, plans, rans, works)
        ]
        page = write_report(
            parts,
            title=plans[0].study.title if story.alone else story.title,
            question=story.question,
            folder=folder,
            static=static,
            command=command or shlex.join(again),
            look=gradient_map(story.look, parts),
            live=None if live is None or static else live(_one_run_each(parts)),
        )
        report = from_json(read_small(folder / "report.json"))
        named = [ComparedPart(part.name, told, ran) for part, told, ran in zip(parts, report["parts"], rans)]
        return Compared(page, report, tuple(named), signals.received)


def _one_run_each(parts: Sequence[Part]) -> dict[str, Run]:
    """The first finished run of each entry, by its name; of several studies, with the study's."""
    runs: dict[str, Run] = {}
    for part in parts:
        for result in part.found:
            name = result.entry if len(parts) == 1 else f"{result.entry} ({part.name})"
            folder = trial_folder(part.folder, result.key) / "run"
            if result.phase == "final" and name not in runs and folder.is_dir():
                runs[name] = load(folder, device="cpu", mixer=classes_of(part.study.mixers))
    return runs


def _kept(story: Story) -> dict[str, Any]:
    """The story in the folder that its studies were run in, so that it can be run again from there."""
    parts = [{"name": chapter.name, "study": f"{chapter.name}/study.toml"} for chapter in story.chapters]
    look = {} if story.look is None else {"look": story.look.model_dump()}
    return {"title": story.title, "question": story.question, "part": parts, **look}


def changed_story(
    study: AnyStudy,
    *,
    settings: Mapping[str, Any],
    minutes: float | None = None,
    only: Sequence[str] = (),
    add: Sequence[str] = (),
    search: bool = False,
    mixers: AnyMixer | Sequence[AnyMixer] = (),
) -> Story:
    """The story, with the overrides applied."""
    given = tuple(_for_workers(own) for own in own_mixers(mixers))
    likes = [like for _, like, _ in map(read_added, add) if names_a_file(like)]
    made = {own.name: own for own in given} | {like: own_mixer(like) for like in likes}
    story = load_story(study, mixers=tuple(dict.fromkeys([*given, *made.values()])))
    if minutes is not None and not minutes > 0:
        raise UserError(f"minutes is {minutes:g}, expected more than 0")
    share = None if minutes is None else minutes / story.minutes
    known = {chapter.name: [entry.name for entry in chapter.study.entry] for chapter in story.chapters}
    everything = [name for names in known.values() for name in names]
    for name in only:
        if name not in everything:
            raise UserError(f"{option('only', name)}: the study has no such entry", fix=nearest(name, set(everything)))
    kept = [chapter for chapter in story.chapters if not only or set(only) & set(known[chapter.name])]
    homes = {chapter.name: known[chapter.name] for chapter in kept}
    chapters = []
    for chapter in kept:
        here = [entry for entry in add if _home(entry, homes) == chapter.name]
        mine = [name for name in only if name in known[chapter.name]]
        own = _own_settings(settings, chapter.name, known)
        changed = changed_study(chapter.study, settings=own, share=share, only=mine, add=here, search=search, made=made)
        chapters.append(Chapter(chapter.name, changed))
    chapters = _with_all(given, chapters)
    look = story.look if story.look is not None and story.look.part in [chapter.name for chapter in kept] else None
    return story._replace(chapters=tuple(chapters), look=look)


def _home(added: str, parts: Mapping[str, Sequence[str]]) -> str:
    """The last part that has the entry which the new one is like; where none has, the last."""
    _, like, _ = read_added(added)
    names = list(parts)[::-1]
    return next((name for name in names if like in parts[name]), names[0])


def _with_all(given: Sequence[OwnMixer], chapters: Sequence[Chapter]) -> list[Chapter]:
    """The last chapter with an entry for each class that no entry has."""
    *before, last = chapters
    named = {own for _, study in chapters for entry in study.entry for own in mixers_of(spec_of(study, entry))}
    new = tuple(entry_of(own) for own in given if own not in named)
    if not new:
        return [*before, last]
    table = as_table(last.study.model_copy(update={"entry": (*last.study.entry, *new)}))
    return [*before, last._replace(study=parse_study(table, mixers=last.study.mixers))]


def _mixer_files(story: Story) -> list[str]:
    """Of the user's own classes that its entries may be made of."""
    every = [own for _, study in story.chapters for own in classes_of(study.mixers)]
    return sorted({own.source.path for own in every if own.source is not None})


def _own_settings(settings: Mapping[str, Any], name: str, parts: Mapping[str, object]) -> dict[str, Any]:
    """Those of one part: said of it by its name, or of all."""
    own = {}
    for path, value in settings.items():
        head, _, rest = path.partition(".")
        if head in ("train", "data", "model", "task", "seed"):
            raise UserError(
                f"a study has no setting {path!r}",
                fix=f"a setting of all entries begins with base: base.{path}={value}",
            )
        if head not in parts or head in StudySpec.model_fields:
            own[path] = value
        elif head == name:
            own[rest] = value
    return own


def changed_study(
    study: StudySpec,
    *,
    settings: Mapping[str, Any],
    share: float | None = None,
    only: Sequence[str] = (),
    add: Sequence[str] = (),
    search: bool = False,
    made: Mapping[str, OwnMixer] | None = None,
) -> StudySpec:
    """One study with the overrides applied; `share` scales its length. A setting that is overridden is not searched.

    `made`: the user's own classes, by the words that `add` may say for them.
    """
    given = [path for path in study.search.space if f"base.{path}" in settings]
    if search or given or any(path.startswith("search.") or path == "search" for path in settings):
        study = study.model_copy(update={"record": (), "record_of": {}})
    if given:
        space = {path: values for path, values in study.search.space.items() if path not in given}
        trials = study.search.trials if space else 1
        study = study.model_copy(update={"search": study.search.model_copy(update={"space": space, "trials": trials})})
    if settings:
        table = with_settings(as_table(study), settings)
        study = parse_study(table, source=f"study {study.title!r} with settings", mixers=study.mixers)
    if only or add:
        likes = [like for _, like, _ in map(read_added, add) if like not in [entry.name for entry in study.entry]]
        runs = {like: entry for like in likes if (entry := entry_of_run(like, study)) is not None}
        study = with_entries(study, only=only, add=add, own=made, others=runs)
    if share is not None:
        amounts = {path: value for path, value in settings.items() if path in _AMOUNTS}
        table = with_settings(as_table(scaled(study, share * study.minutes)), amounts)  # what was said stands as it was
        study = parse_study(table, mixers=study.mixers)
    return study


def _for_workers(own: CustomMixer) -> CustomMixer:
    """The class as the processes of a study will have it: out of the text of its file."""
    if own.source is None:
        raise UserError(
            f"{own.name} cannot be sent to the processes of a study: it does not come from a file of its own",
            fix=f"write it into a file, and name that: mixers=['{snake(own.name)}.py']",
        )
    return from_source(own.source, own.name)


def one_each(plans: Sequence[Plan]) -> int:
    """A worker for each core, or for each GPU where these are used: more would share one, and its time."""
    if torch.cuda.is_available() and any(wanted_device(planned.study) != "cpu" for planned in plans):
        return torch.cuda.device_count()
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _name(study: AnyStudy) -> str:
    """Of the folder."""
    if isinstance(study, str | Path):
        return Path(study).stem
    return title_as_name(study.title if isinstance(study, StudySpec) else str(study.get("title", "study")))

"""`statewise compare`: several models under one budget, in one report."""

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from statewise.cli.option import Json, Quiet, Text, joined, option
from statewise.cli.output import make_table, print_json, tell

if TYPE_CHECKING:
    from rich.table import Table

    from statewise.comparison import Compared, ComparedPart
    from statewise.figures import Frame
    from statewise.tasks import Run

_DEFAULT = "lineage"
# Columns for the terminal, as many as fit; the study's other metrics stand between these. The report has all columns.
_FIRST = ("entry", "metric")
_SHOWN = (
    "group",
    "path",
    "parameters",
    "model_bytes",
    "state_bytes",
    "tokens_per_second",
    "decode_tokens_per_second",
)
_GAP = 3  # between two columns


def compare(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="A shipped study's name (see --list), or a .toml file of your own.")
    ] = _DEFAULT,
    data: Annotated[
        list[str] | None, option("--data -d FILE", "File or folder to train on, in place of the study's own data.")
    ] = None,
    text: Text = None,
    minutes: Annotated[
        float | None, option("--minutes -m N", "Make it shorter or longer: scales all training steps.")
    ] = None,
    seeds: Annotated[int | None, option("--seeds N", "Seeds of each entry.", min=1)] = None,
    workers: Annotated[
        int | None, option("--workers -j N", "Trials in parallel. Default: one per core, or per GPU.", min=1)
    ] = None,
    threads: Annotated[int, option("--threads N", "Threads of each trial.", min=1)] = 1,
    out: Annotated[Path | None, option("--out -o DIR", "Folder of the study. Default: studies/STUDY.")] = None,
    set_: Annotated[
        list[str] | None, option("--set -s PATH=VALUE", "Change any setting, e.g. base.train.lr=0.001.")
    ] = None,
    only: Annotated[list[str] | None, option("--only ENTRY", "Compare only this entry. Can be repeated.")] = None,
    search: Annotated[
        bool, option("--search", "Run the study's search again rather than use the recorded one.")
    ] = False,
    add: Annotated[
        list[str] | None,
        option(
            "--add NAME=LIKE PATH=VALUE",
            "Add an entry: like another, with some settings changed; LIKE may be the .py file of your own mixer.",
        ),
    ] = None,
    mixer: Annotated[
        list[str] | None, option("--mixer FILE.py", "Your own mixer class: an entry of it, or the one a study has.")
    ] = None,
    list_: Annotated[bool, option("--list", "List the studies and exit.")] = False,
    static: Annotated[bool, option("--static", "A report without scripts: static figures.")] = False,
    lab: Annotated[
        bool, option("--lab", "Put the trained models into the report: they read what you type. Needs the extra onnx.")
    ] = False,
    engine: Annotated[
        Literal["local", "ray"], option("--engine local|ray", "Where trials run: here, or on a Ray cluster.")
    ] = "local",
    quiet: Quiet = False,
    json_: Json = False,
) -> int:
    """Train several models under the same budget, several seeds each, and test which differences are significant.

    Finished trials are kept: the same command continues where it was stopped, and --add runs only what is new.

    Example: statewise compare lineage --data my.txt --minutes 10
    Example: statewise compare lineage --add 'mine=my_mixer.py model.options.decay=0.5'
    """
    if list_:
        return _list(json_)

    from statewise.comparison import compare as run_study
    from statewise.comparison import make_board

    compared = run_study(
        study,
        data=None if (files := joined(data, text)) is None else [Path(name) for name in files],
        settings=_settings(set_ or [], seeds=seeds),
        minutes=minutes,
        only=only or (),
        add=add or (),
        search=search,
        mixers=mixer or (),
        out=out,
        workers=workers,
        threads=threads,
        static=static,
        engine=engine,
        display=make_board(quiet=quiet or json_),
        command=shlex.join(["statewise", *sys.argv[1:]]),
        live=_live(static) if lab else None,
    )
    if json_:
        print_json({**compared.report, "report": str(compared.page), "left": compared.left, "failed": compared.failed})
    else:
        _print(compared)
    if compared.stopped:
        message = f"stopped by signal {compared.stopped}; finished trials are kept, and the same command continues"
        tell(f"statewise: {message}", error=True)
        return 128 + compared.stopped
    return 1 if any(trial.phase == "final" for part in compared.parts for trial in part.ran.failed) else 0


def _live(static: bool) -> "Callable[[Mapping[str, Run]], Frame | None]":
    """Refused before training, not after it, where it cannot be had."""
    from statewise.lab import frame
    from statewise.specs import UserError, optional

    if static:
        raise UserError("--lab needs scripts, and --static leaves them out", fix="leave one of the two out")
    optional("onnxscript", extra="onnx", needed_by="models in a report")
    return frame


def _list(json_: bool) -> int:
    from statewise.comparison import load_story, study_names

    known = {name: load_story(name) for name in study_names()}
    if json_:
        print_json(
            {
                name: {
                    "title": story.title,
                    "question": story.question,
                    "minutes": story.minutes,
                    "parts": {
                        chapter.name: {"metric": chapter.study.metric, "seeds": chapter.study.seeds}
                        for chapter in story.chapters
                    },
                }
                for name, story in known.items()
            }
        )
        return 0
    for name, story in known.items():
        tell(f"{name:{max(map(len, known))}}  {story.question} (about {story.minutes:g} min)")
    return 0


def _settings(overrides: list[str], *, seeds: int | None) -> dict[str, Any]:
    """The settings of the study from the command line."""
    from statewise.specs import read_override

    return {**({} if seeds is None else {"seeds": seeds}), **dict(map(read_override, overrides))}


def fitting(widths: dict[str, int], room: int) -> list[str]:
    """The first columns that fit into the width; at least one."""
    columns: list[str] = []
    for name in widths:
        if columns and sum(widths[column] + _GAP for column in [*columns, name]) > room + 1:
            break
        columns.append(name)
    return columns


def _heading(column: dict[str, Any]) -> str:
    """The title with its unit below; metric and group are explained below the table."""
    unit = "" if column["name"] in ("metric", "group") else column["unit"]
    return f"{column['title']}\n{unit}" if unit else str(column["title"])


def _print(compared: "Compared") -> None:
    """The tables and the verdict of the report, as wide as the terminal, and the path of the report."""
    from statewise.display import make_console

    # No width limit for a file.
    console = make_console() if sys.stdout.isatty() else make_console(width=max(map(_table_width, compared.parts)))

    def say(text: str, *, whole: bool = False) -> None:
        """`whole`: on one line, so that a terminal recognises the address in it."""
        console.print(text, highlight=False, markup=False, soft_wrap=whole or not console.is_terminal)

    for part in compared.parts:
        console.print(_table(part, console.width))
        say(" ".join(filter(None, [part.report["method"], part.report["noisy"]])))
        choices = part.report["choices"]
        if choices is not None and "group" in _headings(part):
            say(choices["said"])
    say(compared.verdict)
    for part in compared.parts:
        for failure in part.ran.failed:
            say(f"failed: {failure.entry}, seed {failure.seed}: {failure.error.splitlines()[0]}")
    if compared.left:
        say(f"{compared.left} trials are not done")
    say(f"report: {compared.page}; to open it in a browser: {compared.page.absolute().as_uri()}", whole=True)


def _headings(part: "ComparedPart") -> dict[str, str]:
    columns = {column["name"]: column for column in part.report["table"]["columns"]}
    shown = [*_FIRST, *part.report["also"], *_SHOWN]
    return {name: _heading(columns[name]) for name in shown if name in columns}


def _widths(part: "ComparedPart") -> dict[str, int]:
    from rich.cells import cell_len

    rows = part.report["table"]["rows"]
    headings = _headings(part)
    return {
        name: max(cell_len(line) for line in [*headings[name].split("\n"), *(row[name]["text"] for row in rows)])
        for name in headings
    }


def _table_width(part: "ComparedPart") -> int:
    return sum(width + _GAP for width in _widths(part).values())


def _table(part: "ComparedPart", room: int) -> "Table":
    from rich.markup import escape

    headings, columns = _headings(part), fitting(_widths(part), room)
    table = make_table(title=escape(part.report["title"]), title_justify="left")
    words = {column["name"] for column in part.report["table"]["columns"] if column["text"]}
    for name in columns:
        table.add_column(escape(headings[name]), justify="left" if name in words else "right")
    for row in part.report["table"]["rows"]:
        table.add_row(*(escape(row[name]["text"]) for name in columns))
    return table

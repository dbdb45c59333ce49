"""`statewise inspect`: figures of what a trained model does inside."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statewise.cli.option import Device, Json, Quiet
from statewise.cli.output import print_json, tell
from statewise.cli.run_argument import MixerOption, open_run

if TYPE_CHECKING:
    from statewise.inspection import Inspection

_OF_A_RUN = ("run.toml", "checkpoints")


def inspect(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="A trained folder. Default: list the lenses and their settings."),
    ] = None,
    lens: Annotated[str | None, typer.Argument(metavar="LENS", help="Default: every quick lens.")] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", "-t", metavar="TEXT", help="A text to read, itself or its file, in place of --data."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", "-d", metavar="FILE", help="A file like the training data. Default: the held-out part of it."
        ),
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="RUN", help="Another run, for the lenses that compare.")
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="Also train, for the lenses that can: takes longer.")] = False,
    device: Device = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="NAME=VALUE",
            help="A setting of the lens (window=64), or of one of all lenses (gradient.window=64).",
        ),
    ] = None,
    mixer: MixerOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Folder to write into. Default: RUN/inspect/LENS."),
    ] = None,
    static: Annotated[bool, typer.Option("--static", help="A page without scripts: pictures only.")] = False,
    quiet: Quiet = False,
    json_: Json = False,
) -> None:
    """Look inside a trained model: figures and numbers of how it uses its context.

    Example: statewise inspect runs/lstm
    Example: statewise inspect runs/lstm surprise --text "To be, or not to be"
    Example: statewise inspect runs/tagger gradient --data held-out.conllu
    """
    from statewise.disk import make_folder
    from statewise.inspection import LENSES, letters_without_font, make_progress
    from statewise.inspection import inspect as look_at
    from statewise.specs import read_override

    alone = {one.name for one in LENSES if not one.tasks}
    if run is None:
        _list(json_)
        return
    if lens is None and run in alone and not any((Path(run) / name).exists() for name in _OF_A_RUN):
        run, lens = None, run  # a lens that makes its own models; a folder of that name may be what it wrote before
    settings: dict[str, Any] = dict(read_override(one) for one in set_ or ())
    settings |= {"against": against} if against is not None else {}
    settings |= {"train": True} if train else {}
    _refuse_flags(lens, settings, against=against, train=train)
    opened = None if run is None else open_run(Path(run), device=device, mixer=mixer)
    found = look_at(
        opened,
        lens,
        text=text,
        data=Path(data) if data else None,
        progress=make_progress(quiet=quiet or json_),
        **settings,
    )
    home = Path(run) if run is not None and Path(run).is_dir() else None  # a run of the package is left as it is
    folder = out or (Path("inspect", run or "") if home is None else home / "inspect") / (lens or "all")
    if out is None:
        make_folder(folder, inside=home)
    page = found.write(folder, static=static, command=shlex.join(["statewise", *sys.argv[1:]]))
    files = [str(path) for path in found.files(folder)]
    if json_:
        findings = [one.as_dict() for one in found.findings]
        print_json({"subject": found.subject, "findings": findings, "page": str(page), "files": files})
        return
    _print(found, page, files)
    if (lacking := letters_without_font(found.findings)) is not None:
        tell(lacking, error=True)


def _refuse_flags(lens: str | None, settings: dict[str, Any], *, against: str | None, train: bool) -> None:
    from statewise.inspection import LENSES, find_lens
    from statewise.specs import UserError

    for flag, given in (("against", against is not None), ("train", train)):
        able = [one.name for one in LENSES if flag in one.settings.model_fields]
        if given and (lens is None or flag not in find_lens(lens).settings.model_fields):
            which = "no lens was named" if lens is None else f"the lens {lens!r} does not have it"
            raise UserError(f"--{flag}: {which}", fix=f"it is for {', '.join(able) or 'none'}")
    alone = [name for name in settings if lens is None and "." not in name]
    if alone:
        raise UserError(
            f"--set {alone[0]}=…: no lens was named",
            fix=f"name the lens, or put its name before the setting, for example --set gradient.{alone[0]}=…",
        )


def _list(json_: bool) -> None:
    """Every lens with its settings."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from statewise.display import make_console
    from statewise.inspection import LENSES

    if json_:
        print_json(
            {
                one.name: {
                    "shows": one.shows,
                    "tasks": list(one.tasks),
                    "quick": one.quick,
                    "settings": one.settings.model_json_schema(),
                }
                for one in LENSES
            }
        )
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("lens", "shows", "of", "settings"):
        table.add_column(heading)
    for one in LENSES:
        fields = one.settings.model_fields
        settings = "\n".join(f"{name}={field.default}: {field.description}" for name, field in fields.items())
        of = ", ".join(one.tasks) or "models of its own"
        table.add_row(one.name, escape(one.shows), of if one.quick else f"{of}; not quick", escape(settings))
    console = make_console()
    console.print(table)
    console.print(
        "statewise inspect RUN: every quick lens (--set LENS.NAME=VALUE: a setting of one of them); "
        "statewise inspect RUN LENS --set NAME=VALUE: one lens"
    )


def _print(found: "Inspection", page: Path, files: list[str]) -> None:
    from statewise.display import make_console

    console = make_console()

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    for one in found.findings:
        say(f"{one.title}")
        for sentence in one.sentences:
            say(f"  {sentence}")
        for lacking in one.missing:
            say(f"  ({lacking})")
    kinds = ", ".join(
        f"{count} {kind}" for kind in ("csv", "svg", "png") if (count := sum(one.endswith(kind) for one in files))
    )
    say(f"page: {page}; to open it in a browser: {page.absolute().as_uri()}")
    if kinds:
        say(f"files: {page.parent / 'figures'} ({kinds})")

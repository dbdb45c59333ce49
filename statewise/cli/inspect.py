"""`statewise inspect`: figures of what a trained model does inside."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statewise.cli.option import Device, Json, MixerOption, Quiet, open_run, option
from statewise.cli.output import make_table, print_json, tell

if TYPE_CHECKING:
    from statewise.inspection import Inspection


def inspect(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A trained folder. Default: list the lenses and their settings.")
    ] = None,
    lens: Annotated[str | None, typer.Argument(metavar="LENS", help="Default: every quick lens.")] = None,
    text: Annotated[
        str | None, option("--text -t TEXT", "A text to read, itself or its file, in place of --data.")
    ] = None,
    data: Annotated[
        str | None, option("--data -d FILE", "A file like the training data. Default: the held-out part of it.")
    ] = None,
    against: Annotated[str | None, option("--against RUN", "Another run, for the lenses that compare.")] = None,
    train: Annotated[bool, option("--train", "Also train, for the lenses that can: takes longer.")] = False,
    device: Device = None,
    set_: Annotated[
        list[str] | None,
        option(
            "--set -s NAME=VALUE", "A setting of the lens (window=64), or of one of all lenses (gradient.window=64)."
        ),
    ] = None,
    mixer: MixerOption = None,
    out: Annotated[Path | None, option("--out -o DIR", "Folder to write into. Default: RUN/inspect/LENS.")] = None,
    static: Annotated[bool, option("--static", "A page without scripts: pictures only.")] = False,
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
    from statewise.tasks import is_run

    without_run = {item.name for item in LENSES if not item.needs_run}
    if run is None:
        _list(json_)
        return
    if lens is None and run in without_run and not is_run(Path(run)):
        run, lens = None, run  # a lens that trains its own models; a folder of that name may be its earlier output
    settings: dict[str, Any] = dict(read_override(item) for item in set_ or ())
    settings |= {"against": against} if against is not None else {}
    settings |= {"train": True} if train else {}
    _refuse_flags(lens, settings, against=against, train=train)
    opened = None if run is None else open_run(Path(run), device=device, mixer=mixer)
    inspection = look_at(
        opened,
        lens,
        text=text,
        data=Path(data) if data else None,
        progress=make_progress(quiet=quiet or json_),
        **settings,
    )
    home = Path(run) if run is not None and Path(run).is_dir() else None  # do not write into a shipped run
    folder = out or (Path("inspect", run or "") if home is None else home / "inspect") / (lens or "all")
    if out is None:
        make_folder(folder, inside=home)
    page = inspection.write(folder, static=static, command=shlex.join(["statewise", *sys.argv[1:]]))
    files = [str(path) for path in inspection.files(folder)]
    if json_:
        findings = [item.as_dict() for item in inspection.findings]
        print_json({"subject": inspection.subject, "findings": findings, "page": str(page), "files": files})
        return
    _print(inspection, page, files)
    if (lacking := letters_without_font(inspection.findings)) is not None:
        tell(lacking, error=True)


def _refuse_flags(lens: str | None, settings: dict[str, Any], *, against: str | None, train: bool) -> None:
    from statewise.inspection import LENSES, find_lens
    from statewise.specs import UserError

    for flag, used in (("against", against is not None), ("train", train)):
        able = [entry.name for entry in LENSES if flag in entry.settings.model_fields]
        if used and (lens is None or flag not in find_lens(lens).settings.model_fields):
            which = "no lens was named" if lens is None else f"the lens {lens!r} does not have it"
            raise UserError(f"--{flag}: {which}", fix=f"it is for {', '.join(able) or 'none'}")
    unqualified = [name for name in settings if lens is None and "." not in name]
    if unqualified:
        raise UserError(
            f"--set {unqualified[0]}=…: no lens was named",
            fix=f"name the lens, or put its name before the setting, for example --set gradient.{unqualified[0]}=…",
        )


def _list(json_: bool) -> None:
    """Every lens with its settings."""
    from rich.markup import escape

    from statewise.display import make_console
    from statewise.inspection import LENSES

    if json_:
        print_json(
            {
                lens.name: {
                    "shows": lens.shows,
                    "needs_run": lens.needs_run,
                    "quick": lens.quick,
                    "settings": lens.settings.model_json_schema(),
                }
                for lens in LENSES
            }
        )
        return
    table = make_table("lens", "shows", "of", "settings")
    for lens in LENSES:
        fields = lens.settings.model_fields
        settings = "\n".join(f"{name}={field.default}: {field.description}" for name, field in fields.items())
        of = "a run" if lens.needs_run else "models of its own"
        table.add_row(lens.name, escape(lens.shows), of if lens.quick else f"{of}; not quick", escape(settings))
    console = make_console()
    console.print(table)
    console.print(
        "statewise inspect RUN: every quick lens (--set LENS.NAME=VALUE: a setting of one of them); "
        "statewise inspect RUN LENS --set NAME=VALUE: one lens"
    )


def _print(inspection: "Inspection", page: Path, files: list[str]) -> None:
    from statewise.display import make_console

    say = make_console().say
    for finding in inspection.findings:
        say(f"{finding.title}")
        for sentence in finding.sentences:
            say(f"  {sentence}")
        for lacking in finding.missing:
            say(f"  ({lacking})")
    kinds = ", ".join(
        f"{count} {kind}"
        for kind in ("csv", "svg", "png")
        if (count := sum(finding.endswith(kind) for finding in files))
    )
    say(f"page: {page}; to open it in a browser: {page.absolute().as_uri()}")
    if kinds:
        say(f"files: {page.parent / 'figures'} ({kinds})")

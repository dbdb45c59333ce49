"""`statewise lab`: models in one page that opens from disk, where each reads what is typed."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from statewise.cli.option import Json, MixerOption, open_run
from statewise.cli.output import print_json, tell


def lab(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]...", help="Trained folders. Default: the lineage that comes with the package."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page.")] = Path("lab.html"),
    exact: Annotated[
        bool, typer.Option("--exact", help="Weights in float32 rather than float16: a page twice as large.")
    ] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    mixer: MixerOption = None,
    json_: Json = False,
) -> int:
    """Write one HTML page in which models read the text that you type: their states, gates, attention and gradients.

    It opens from disk, loads nothing, and needs neither Python nor a server. Language models are shown, and
    classifiers that read a text token by token.

    Example: statewise lab --open
    Example: statewise lab runs/lstm runs/gru --out my.html
    """
    from statewise.disk import write
    from statewise.lab import bundle, lineage, page
    from statewise.specs import UserError

    if not runs and exact:
        raise UserError("the models that come with the package have float16 weights", fix="leave out --exact")
    if runs:
        data = bundle([open_run(run, device="cpu", mixer=mixer) for run in runs], exact=exact)
    else:
        data = lineage()
    title = "The lab" if len(data["models"]) != 1 else data["models"][0]["name"]
    write(out, page(data, title))
    size = out.stat().st_size
    if json_:
        print_json({"page": str(out), "bytes": size, "models": [model["name"] for model in data["models"]]})
    else:
        tell(
            f"{out}: {len(data['models'])} models, {size / 1e6:.1f} MB; open it in a browser: {out.resolve().as_uri()}"
        )
    if open_:
        webbrowser.open(out.resolve().as_uri())
    return 0

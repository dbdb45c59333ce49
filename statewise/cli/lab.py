"""`statewise lab`: models in one page that opens from disk, where each reads what is typed."""

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statewise.cli.option import Device, Json, MixerOption, open_run, option
from statewise.cli.output import print_json, tell
from statewise.cli.serve import prepare_server

if TYPE_CHECKING:
    from statewise.lab import Foreign
    from statewise.tasks import Run


def lab(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help="Trained folders. Default: the lineage that comes with the package."),
    ] = None,
    out: Annotated[Path, option("--out -o FILE", "The page.")] = Path("lab.html"),
    exact: Annotated[bool, option("--exact", "Weights in float32 rather than float16: a page twice as large.")] = False,
    open_: Annotated[bool, option("--open", "Open the page in a browser.")] = False,
    live: Annotated[
        bool, option("--live", "Serve the page: this process computes the runs, of any size, and can train copies.")
    ] = False,
    port: Annotated[int, option("N", "With --live. 0: a free one.")] = 8000,
    runtime: Annotated[
        str | None, option("ort:DIR", "Compute by onnxruntime-web, whose npm package DIR is written into the page.")
    ] = None,
    device: Device = None,
    mixer: MixerOption = None,
    json_: Json = False,
) -> int:
    """Write one HTML page in which models read the text that you type: their states, gates, attention and gradients.

    It opens from disk, loads nothing, and needs neither Python nor a server. Language models are shown, and
    classifiers that read a text token by token.

    Example: statewise lab --open
    Example: statewise lab runs/lstm runs/gru --out my.html
    Example: statewise lab runs/large --live
    """
    from statewise.disk import write
    from statewise.specs import UserError

    if live:
        prepare_server()
        if not runs:
            raise UserError("a live page needs a run", fix="name one: statewise lab RUN --live")
        return _served([open_run(run, device=device or "auto", mixer=mixer) for run in runs], port, open_, json_)

    from statewise.lab import bundle, lineage, page

    if not runs and exact:
        raise UserError("the models that come with the package have float16 weights", fix="leave out --exact")
    if not runs and runtime:
        raise UserError("the models that come with the package are small", fix="name a run, or leave out --runtime")
    engine = None if runtime is None else _engine(runtime)
    if runs:
        data = bundle([open_run(run, device="cpu", mixer=mixer) for run in runs], exact=exact, onnx=engine is not None)
    else:
        data = lineage()
    title = "The lab" if len(data["models"]) != 1 else data["models"][0]["name"]
    write(out, page(data, title, runtime=engine))
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


def _engine(runtime: str) -> "Foreign":
    from statewise.lab import foreign
    from statewise.specs import UserError

    kind, _, folder = runtime.partition(":")
    if kind != "ort" or not folder:
        raise UserError(f"--runtime is {runtime!r}", fix="--runtime ort:node_modules/onnxruntime-web")
    return foreign(Path(folder))


def _served(runs: list["Run"], port: int, open_: bool, json_: bool) -> int:
    from statewise.lab.live import serve_live
    from statewise.specs import ServingSpec

    def ready(address: str) -> None:
        if json_:
            print_json({"address": address, "models": [run.path.name for run in runs]})
            tell(end="", flush=True)  # whoever waits for it reads a pipe
        else:
            tell(f"the lab is at {address}; Ctrl-C stops", flush=True)
        if open_:
            webbrowser.open(address)

    return serve_live(runs, ServingSpec(port=port, device=str(runs[0].device)), ready)

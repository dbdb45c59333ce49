"""`statewise serve`: runs answer over HTTP, in OpenAI's form, and keep their states."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from statewise.cli.option import Device, Json, MixerOption, open_run, option
from statewise.cli.output import print_json, tell

if TYPE_CHECKING:
    from statewise.serving import AnyEngine
    from statewise.specs import ServingSpec
    from statewise.tasks import Run

_KEY = "STATEWISE_KEY"


def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help="Trained folders. Default: the runs that come with the package."),
    ] = None,
    host: Annotated[str, option("ADDRESS", "Another than loopback needs a key.")] = "127.0.0.1",
    port: Annotated[int, option("N", "0: a free one.")] = 8000,
    name: Annotated[
        list[str] | None, option("NAME", "The name of a run in requests, in their order. Default: its folder's.")
    ] = None,
    key: Annotated[
        list[str] | None, option("KEY", f"Clients must send it. Can be repeated; better: the variable {_KEY}.")
    ] = None,
    states: Annotated[Path | None, option("DIR", "Keep saved states here, over a restart. Default: in memory.")] = None,
    slots: Annotated[int, option("N", "Texts generated at once, of each model.")] = 32,
    queue: Annotated[int, option("N", "Texts that wait; more are refused.")] = 64,
    batch_invariant: Annotated[
        bool, option("--batch-invariant", "Bit for bit the same text in any company; slower.")
    ] = False,
    prefix_sharing: Annotated[
        Literal["none", "own", "all"],
        option("WHOSE", "Whose earlier prompts a prompt may start from: none, own, all (timing reveals them)."),
    ] = "own",
    engine: Annotated[
        Literal["local", "ray"],
        option("local|ray", "Where texts are generated: here, or by replicas on a Ray cluster."),
    ] = "local",
    replicas: Annotated[int, option("N", "With --engine ray: copies of the models.")] = 2,
    device: Device = None,
    mixer: MixerOption = None,
    set_: Annotated[list[str] | None, option("--set -s NAME=VALUE", "Another setting, e.g. drain_seconds=30.")] = None,
    json_: Json = False,
) -> int:
    """Serve runs over HTTP as OpenAI's clients ask: completions, responses, models; and saved states, and other tasks.

    SIGTERM or Ctrl-C finishes what runs; a second one stops at once.

    Example: statewise serve runs/lstm --port 8000
    Example: statewise serve runs/lstm runs/classification --states states
    """
    from statewise.specs import UserError, optional

    prepare_server()
    if engine == "ray":
        optional("ray", extra="ray", needed_by="--engine ray")
    given: dict[str, Any] = {"host": host, "port": port, "slots": slots, "queue": queue, "device": device or "auto"}
    given |= {"engine": engine, "replicas": replicas}
    given |= {"batch_invariant": batch_invariant, "prefix_sharing": prefix_sharing}
    given |= {"keys": tuple(key or filter(None, [os.environ.get(_KEY)]))}
    given |= {"states": None if states is None else str(states)}
    spec = _spec(given, set_ or [])

    from statewise.tasks import shipped_names

    folders = runs or [Path(shipped) for shipped in shipped_names()]
    names = [*(name or []), *(folder.resolve().name for folder in folders[len(name or []) :])]
    if len(names) > len(folders):
        raise UserError(f"{len(names)} names for {len(folders)} runs", fix="give one --name for each run, in order")
    if len(set(names)) < len(names):
        raise UserError(f"two runs have one name: {', '.join(names)}", fix="give each its own: --name A --name B")

    from statewise.serving import Cluster, Engine
    from statewise.serving.http import listen
    from statewise.serving.http import serve as answer

    listener = listen(spec)
    address = _address(listener.getsockname())

    def opened(device: str) -> dict[str, "Run"]:
        return {key: open_run(path, device=device, mixer=mixer) for key, path in zip(names, folders)}

    def load() -> "AnyEngine":
        if spec.engine == "local":
            return Engine(opened(spec.device), spec)
        here = opened("cpu")  # for tokenizers and sizes; replicas compute
        places = {key: run.path.absolute() for key, run in here.items()}
        file, device = None if mixer is None else str(Path(mixer).absolute()), spec.device
        return Cluster(
            here, spec, lambda: {key: open_run(place, device=device, mixer=file) for key, place in places.items()}
        )

    def ready(engine: "AnyEngine") -> None:
        if json_:
            about = {"address": address, "models": list(engine.models)}
            print_json(about)
            tell(end="", flush=True)  # whoever waits for it reads a pipe
        else:
            tell(f"serving {', '.join(engine.models)} at {address}/v1; Ctrl-C stops", flush=True)

    return answer(spec, listener, load, ready)


def prepare_server() -> None:
    """Before torch is loaded, because its libraries read these once."""
    from statewise.specs import optional

    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # a thread that waits must not keep the core of one that works
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")  # shapes: an LSTM's code for one takes 0.2 MB
    for module in ("starlette", "uvicorn", "httptools", "uvloop"):
        optional(module, extra="serve", needed_by="servers")


def _address(name: Any) -> str:
    host, port = name[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _spec(given: dict[str, Any], settings: list[str]) -> "ServingSpec":
    from pydantic import ValidationError

    from statewise.specs import ServingSpec, UserError, complaints, nearest, read_override

    for override in settings:
        path, value = read_override(override)
        if path not in ServingSpec.model_fields:
            raise UserError(f"{path!r} is not a setting of a server", fix=nearest(path, ServingSpec.model_fields))
        given[path] = value
    try:
        return ServingSpec(**given)
    except ValidationError as error:
        told = complaints(error, lambda detail: f"  {'.'.join(map(str, detail['loc'])) or 'access'}: {detail['msg']}")
        raise UserError(f"the server's settings are not valid:\n{told.replace('Value error, ', '')}") from None

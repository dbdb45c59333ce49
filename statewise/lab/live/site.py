"""The live page over the server of `statewise serve`: its paths, and the process.

Only programs of this machine can connect, and the server's own rules hold: what another web page asks is refused.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from statewise.lab.live.session import FutureRequest, GradientRequest, Live, ReadRequest, TextRequest, TrainRequest
from statewise.lab.page import page
from statewise.serving import Engine
from statewise.serving.http import Body, Path, as_html, as_json, invalid, listen, parse, serve
from statewise.specs import ServingSpec, UserError
from statewise.tasks import Run

T = TypeVar("T", bound=Body)


def serve_live(runs: Sequence[Run], spec: ServingSpec, ready: Callable[[str], None]) -> int:
    """Serve the page of these runs until a signal; `ready` hears its address. Returns an exit code."""
    if not spec.is_loopback:
        raise UserError(f"a live page is for this machine alone, not for {spec.host}", fix="host 127.0.0.1")
    live = Live(runs)
    data = live.bundle()
    title = "The lab" if len(runs) != 1 else data["models"][0]["name"]
    listener = listen(spec)
    host, port = listener.getsockname()[:2]
    address = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
    return serve(
        spec,
        listener,
        lambda: Engine(live.runs, spec),
        lambda _: ready(address),
        paths(live, page(data, title, live=True)),
    )


def paths(live: Live, text: str) -> list[Path]:
    async def show(_: Any, __: Any) -> Any:
        return as_html(text)

    return [
        Path("GET", "/", show, "The lab's page"),
        _path("read", ReadRequest, live.read, "Steps over some tokens, from a state that is kept"),
        _path("future", FutureRequest, live.future, "The most probable tokens that follow"),
        _path("gradient", GradientRequest, live.gradient, "How much each token changes a prediction's loss"),
        _path("truncation", TextRequest, live.truncation, "The parts of a text's gradient"),
        _path("train", TrainRequest, live.train, "Train a copy of a model on a text"),
    ]


def _path(name: str, kind: type[T], answer: Callable[[T], dict[str, Any]], says: str) -> Path:
    return Path("POST", f"/lab/{name}", partial(_answer, kind, answer), says, kind)


async def _answer(kind: type[T], answer: Callable[[T], dict[str, Any]], _: Any, request: Any) -> Any:
    """In a thread: texts of other requests go on meanwhile."""
    asked = await parse(kind, request)
    try:
        return as_json(await asyncio.to_thread(answer, asked))
    except UserError as error:
        raise invalid(str(error)) from None

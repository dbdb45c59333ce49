"""A server in this process or in one of its own, on a free port, and a client of the standard library alone."""

import asyncio
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from statewise.serving import Engine
from statewise.serving.http import Server, listen
from statewise.specs import ServingSpec
from statewise.tasks import load

TEXT = (
    "the cat sat on the mat and the dog sat on the log, so the cat and the dog sat. " * 40
)  # what runs are trained on


class Said(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


class Client:
    """Asks a server; one connection for each request."""

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        self.port, self._headers = port, dict(headers or {})

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Said:
        """`body` is sent as JSON, or as it is if it is bytes."""
        connection = self.open(method, path, body, **headers)
        try:
            began = time.perf_counter()
            response = connection.getresponse()
            content = response.read()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Said(response.status, named, content, time.perf_counter() - began)
        finally:
            connection.close()

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"content-type": "application/json"} if body is not None else {}
        sent |= self._headers | {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, sent)
        return connection

    def complete(self, **asked: Any) -> Any:
        said = self.ask("POST", "/v1/completions", {"model": "lstm", **asked})
        assert said.status == 200, said.content
        return said.json

    def stream(self, path: str = "/v1/completions", **asked: Any) -> list[str]:
        """The data of all events."""
        said = self.ask("POST", path, {"model": "lstm", "stream": True, **asked})
        assert said.status == 200, said.content
        assert said.headers["content-type"].startswith("text/event-stream")
        return [line.removeprefix("data: ") for line in said.content.decode().split("\n") if line.startswith("data: ")]

    def chunks(self, **asked: Any) -> list[dict[str, Any]]:
        *events, done = self.stream(**asked)
        assert done == "[DONE]"
        return [json.loads(event) for event in events]

    def metric(self, name: str) -> float:
        lines = self.ask("GET", "/metrics").content.decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"statewise_{name}"))

    def until_idle(self, seconds: float = 5.0) -> float:
        """How long it took until nothing was running or waiting."""
        began = time.perf_counter()
        while self.metric("requests_running") + self.metric("requests_waiting") + self.metric("open_requests"):
            assert time.perf_counter() - began < seconds, "rows were not given back"
            time.sleep(0.01)
        return time.perf_counter() - began


class Running(NamedTuple):
    client: Client
    server: Server
    engine: Engine
    loop: asyncio.AbstractEventLoop


@contextmanager
def running(folders: Mapping[str, Path], **settings: Any) -> Iterator[Running]:
    """A server with these runs, in a thread of its own."""
    spec = ServingSpec(port=0, device="cpu", **settings)
    listener = listen(spec)
    ready = threading.Event()
    made: list[Any] = []

    async def live() -> None:
        server = Server(spec, listener)
        made.extend((server, asyncio.get_running_loop()))
        await server.run(
            lambda: Engine({name: load(path, device="cpu") for name, path in folders.items()}, spec), begun
        )

    def begun(engine: Engine) -> None:
        made.append(engine)
        ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(live()), daemon=True)
    thread.start()
    assert ready.wait(60), "the server did not start"
    server, loop, engine = made
    keys = spec.keys
    headers = {"authorization": f"Bearer {keys[0].get_secret_value()}"} if keys else {}
    try:
        yield Running(Client(listener.getsockname()[1], headers), server, engine, loop)
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(server.stop)
            loop.call_soon_threadsafe(server.stop)
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"


@contextmanager
def process(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    """`statewise serve`, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "statewise",
        "serve",
        str(folder),
        "--port",
        "0",
        "--json",
        "--name",
        "lstm",
        *words,
    ]
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            told = "".join(iter(started.stdout.readline, "}\n")) + "}"
            yield started, Client(int(json.loads(told)["address"].rpartition(":")[2]))
        finally:
            if started.poll() is None:
                started.kill()

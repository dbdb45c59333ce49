"""Mixed traffic for minutes or hours: does a server keep its memory, its threads, its open files and its texts?

    python benchmarks/serve_soak.py                                   ten minutes, the runs that come with the package
    python benchmarks/serve_soak.py shakespeare-lstm --minutes 60 --pause 0.5

Clients complete and stream, leave in the middle, send bad requests, continue sessions, fork, move and delete states,
and ask for one text that must never change. Every few seconds the memory, threads and open files of the server are
read. Twice a minute the clients pause until the server has nothing to do: what its memory is then does not depend on
what they asked for last. It fails (exit code 1) if the idle memory, the threads or the files grow after the first
fifth of the time, if an answer is not the expected one, or if the server writes to its log.
"""

import asyncio
import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from command_line import console, options, positive, write
from rich.table import Table
from serve_http import Address, memory, served

GROWTH = 0.01  # of the memory, in an hour or less
WARM = 0.2  # of the time, before growth counts
FIXED = {"prompt": "ROMEO: but soft,", "max_tokens": 24, "seed": 7, "temperature": 0.8}
CROWD = 64  # requests at once
TURNS = 12  # of a session, before it is deleted
COUNTED = ("memory", "threads", "files")
ROUND = 30.0  # seconds between two rests
REST = 5.0  # seconds that the server has to itself


class Sample(NamedTuple):
    seconds: float
    memory: int  # bytes
    threads: int
    files: int
    requests: int
    rest: bool = False


class Unexpected(Exception):
    """An answer that is not the expected one."""


class Traffic:
    """What the clients do, and what went wrong."""

    def __init__(self, address: Address, models: Sequence[str], pause: float) -> None:
        self._address, self._models, self._pause = address, models, pause
        self.going, self.busy = asyncio.Event(), 0  # whether clients may begin, and how many are at work
        self._fixed: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.latencies: list[tuple[float, float]] = []  # of the fixed text: when, seconds

    async def ask(
        self, method: str, path: str, body: Any = None, *, expect: int = 200, leave: int | None = None
    ) -> bytes:
        """The body of the answer; `leave`: go after so many lines of it."""
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            kind = "octet-stream" if isinstance(body, bytes) else "json"
            data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
            head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            head += f"content-type: application/{kind}\r\ncontent-length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            await writer.drain()
            if leave is not None:
                for _ in range(leave):
                    await reader.readline()
                return b""
            status = int((await reader.readline()).split()[1])
            chunked = False
            while (line := await reader.readline()).strip():
                chunked |= line.lower().startswith(b"transfer-encoding: chunked")
            said = await reader.read()
            if status != expect:
                raise Unexpected(f"{method} {path}: {status} {said[:200].decode(errors='replace')}")
            if chunked and not said.endswith(b"0\r\n\r\n"):
                raise Unexpected(f"{method} {path}: the stream was cut off")
            return said
        finally:
            writer.close()

    def asked(self, rng: random.Random, **more: Any) -> dict[str, Any]:
        about = {"model": rng.choice(self._models), "seed": rng.randrange(1000), "temperature": rng.choice([0, 0.7, 1])}
        return {**about, "prompt": "KING " * rng.randrange(1, 40), "max_tokens": rng.randrange(1, 48), **more}

    async def complete(self, rng: random.Random) -> None:
        more: dict[str, Any] = rng.choice([{}, {"n": 2}, {"logprobs": 5, "echo": True}, {"prompt": ["the", "a king"]}])
        await self.ask("POST", "/v1/completions", self.asked(rng, **more))

    async def stream(self, rng: random.Random) -> None:
        said = await self.ask("POST", "/v1/completions", self.asked(rng, stream=True))
        if b"data: [DONE]" not in said:
            raise Unexpected("a stream without its end")

    async def leave(self, rng: random.Random) -> None:
        body = self.asked(rng, stream=rng.random() < 0.7, max_tokens=200)
        await self.ask("POST", "/v1/completions", body, leave=rng.randrange(30) if body["stream"] else 0)

    async def mistake(self, rng: random.Random) -> None:
        wrong = rng.choice([{"temperature": -1}, {"prompt": 5}, {"max_tokens": 10**9}, {"state": "no-such"}])
        expect = 404 if "state" in wrong else 400
        await self.ask("POST", "/v1/completions", self.asked(rng, **wrong), expect=expect)
        await self.ask("GET", "/nowhere", expect=404)

    async def session(self, rng: random.Random) -> None:
        name, model = f"session-{rng.randrange(1 << 40)}", rng.choice(self._models)
        for _ in range(rng.randrange(1, TURNS)):
            await self.ask("POST", "/v1/completions", self.asked(rng, model=model, session_id=name))
        await self.ask("POST", f"/v1/states/{name}/fork", {"id": f"{name}-fork"}, expect=201)
        content = await self.ask("GET", f"/v1/states/{name}/content")
        path = f"/v1/states/{name}-moved/content?model={model}"
        await self.ask("PUT", path, content, expect=201)
        for end in ("", "-fork", "-moved"):
            await self.ask("DELETE", f"/v1/states/{name}{end}")

    async def fill(self) -> None:
        """Start the threads that wait for disks: one starts only where more requests than ever before meet."""
        await self.ask("POST", "/v1/completions", {"model": self._models[0], "session_id": "fill", **FIXED})
        await asyncio.gather(*(self.ask("GET", "/v1/states/fill/content") for _ in range(CROWD)))
        await self.ask("DELETE", "/v1/states/fill")

    async def look(self, rng: random.Random) -> None:
        for path in ("/v1/models", "/metrics", "/health", "/openapi.json", "/v1/states"):
            await self.ask("GET", path)
        await self.ask("POST", "/tokenize", {"model": rng.choice(self._models), "prompt": "the king " * 200})

    async def same(self, rng: random.Random) -> None:
        model, began = rng.choice(self._models), time.monotonic()
        said = json.loads(await self.ask("POST", "/v1/completions", {**FIXED, "model": model}))
        self.latencies.append((time.monotonic(), time.monotonic() - began))
        text = said["choices"][0]["text"]
        if self._fixed.setdefault(model, text) != text:
            raise Unexpected(f"{model} wrote {text!r}, not {self._fixed[model]!r}")

    async def client(self, number: int, end: float) -> None:
        rng = random.Random(number)
        kinds: list[Callable[[random.Random], Awaitable[None]]] = [
            *(self.complete, self.stream, self.leave, self.mistake, self.session, self.look, self.same)
        ]
        while time.monotonic() < end:
            await self.going.wait()
            kind = rng.choice(kinds)
            self.busy += 1
            try:
                await kind(rng)
            except (Unexpected, OSError, ValueError) as error:
                self.wrong[f"{kind.__name__}: {error}"] += 1
            self.busy -= 1
            self.done[kind.__name__] += 1
            await asyncio.sleep(rng.uniform(0, 2 * self._pause))


def sample(pid: int, began: float, requests: int, *, rest: bool = False) -> Sample:
    process = Path(f"/proc/{pid}")
    counts = [sum(1 for _ in (process / part).iterdir()) for part in ("task", "fd")]
    return Sample(time.monotonic() - began, memory(pid), *counts, requests, rest)


async def watched(traffic: Traffic, pid: int, *, clients: int, seconds: float, every: float) -> list[Sample]:
    """Samples of the process while the clients work; the last one is taken when all have gone."""
    await traffic.fill()
    began = time.monotonic()
    end, rested = began + seconds, began
    traffic.going.set()
    work = [asyncio.create_task(traffic.client(number, end)) for number in range(clients)]
    samples = []
    while time.monotonic() < end:
        await asyncio.sleep(min(every, max(0.01, end - time.monotonic())))
        rest = time.monotonic() - rested > ROUND
        if rest:
            traffic.going.clear()
            while traffic.busy:
                await asyncio.sleep(0.1)
            await asyncio.sleep(REST)
        samples.append(sample(pid, began, traffic.done.total(), rest=rest))
        if rest:
            rested = time.monotonic()
            traffic.going.set()
    await asyncio.gather(*work)
    await asyncio.sleep(REST)
    return [*samples, sample(pid, began, traffic.done.total(), rest=True)]


def complaints(samples: Sequence[Sample], before: Sample) -> list[str]:
    """What grew: of the idle memory more than 1 % an hour, of threads and files any."""
    last = samples[-1]
    warm = samples[int(WARM * len(samples)) :]
    resting = [one for one in warm if one.rest]
    fifth = max(1, len(resting) // 5)
    first, final = (float(np.median([one.memory for one in part])) for part in (resting[:fifth], resting[-fifth:]))
    hours = max(1.0, last.seconds / 3600)
    made = []
    if final > first * (1 + GROWTH * hours):
        made.append(f"idle memory grew from {first / 1e6:.1f} to {final / 1e6:.1f} MB")
    half = len(warm) // 2
    threads = [max(one.threads for one in part) for part in (warm[:half] or warm, warm[half:])]
    if threads[1] > threads[0]:
        made.append(f"threads grew from {threads[0]} to {threads[1]}")
    if last.files > before.files:
        made.append(f"{last.files} files are open when all clients have gone, and {before.files} were before they came")
    return made


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("runs", nargs="*", help="default: a recurrent network and a Transformer of the package")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=positive, default=12)
    parser.add_argument("--pause", type=float, default=0.05, help="mean seconds of a client between two actions")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two samples")
    asked = parser.parse_args()
    runs = asked.runs or ["shakespeare-lstm", "shakespeare-transformer"]
    # Known prompts fill their memory in the first minute, or they would look like a leak for the first hour.
    settings = ["--set", f"prefix_bytes={8 << 20}"]
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "w+b") as log:
        with served(runs, *settings, "--states", os.path.join(folder, "states"), log=log) as (server, address, _):
            names = [Path(run).name for run in runs]
            traffic = Traffic(address, names, asked.pause)
            before = sample(server.pid, time.monotonic(), 0)
            work = watched(traffic, server.pid, clients=asked.clients, seconds=60 * asked.minutes, every=asked.every)
            samples = asyncio.run(work)
        log.seek(0)
        logged = log.read().decode(errors="replace")
    made = complaints(samples, before) + [f"{count} times: {text}" for text, count in traffic.wrong.most_common(10)]
    if logged.strip():
        made.append(f"the server's log says:\n{logged[-2000:]}")
    table = Table(title=f"{', '.join(names)}: {asked.minutes:g} minutes, {asked.clients} clients", title_justify="left")
    columns = ("minute", "actions", "MB idle", "MB busy, median", "threads", "files", "fixed text p95 ms")
    for column in columns:
        table.add_column(column, justify="right")
    resting = [one for one in samples if one.rest]
    shown = resting[:: max(1, len(resting) // 12)]
    start = traffic.latencies[0][0] if traffic.latencies else 0.0
    for one, after in zip(shown, [*shown[1:], samples[-1]]):
        took = [1000 * took for at, took in traffic.latencies if one.seconds <= at - start < after.seconds] or [0.0]
        busy = [each.memory for each in samples if not each.rest and one.seconds <= each.seconds <= after.seconds]
        held = f"{np.median(busy or [0]) / 1e6:.1f}"
        numbers = (f"{one.requests:,}", f"{one.memory / 1e6:.1f}", held, str(one.threads), str(one.files))
        table.add_row(f"{one.seconds / 60:.1f}", *numbers, f"{np.percentile(took, 95):.0f}")
    console().print(table)
    console().print(", ".join(f"{name} {count:,}" for name, count in traffic.done.most_common()))
    for text in made:
        console().print(f"failed: {text}", markup=False)
    write(asked.json, [one._asdict() for one in samples], failed=made, done=dict(traffic.done))
    return 1 if made else 0


if __name__ == "__main__":
    raise SystemExit(main())

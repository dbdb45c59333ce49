"""Streams over HTTP: tokens a second, time to the first token and between tokens, the server's CPU time and memory.

    python benchmarks/serve_http.py shakespeare-lstm                       1, 8, 32, 128 and 1,000 streams
    python benchmarks/serve_http.py shakespeare-lstm --streams 10000 --tokens 40 --clients 4
    python benchmarks/serve_http.py --url http://127.0.0.1:8000 NAME       a server that runs already, ours or another
    python benchmarks/serve_http.py --only overhead                        the HTTP side alone

Starts `statewise serve`, and clients in processes of their own: plain sockets, one a stream, all begun at once. Each
stream asks for a text of that many tokens, past its end if need be. Several tokens may come in one event.

`--only overhead` has an engine that computes nothing: the server's CPU time for each event that it writes, for each
request (a connection of its own, one token, streamed) and for each that it refuses; and the memory of an open stream.
"""

import asyncio
import gc
import json
import multiprocessing
import os
import resource
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlparse

import numpy as np
import uvloop
from command_line import console, options, positive, write
from rich.table import Table

from statewise.serving import Engine, Event, Job
from statewise.serving.http import Server, listen
from statewise.specs import ServingSpec
from statewise.tasks import load

STREAMS = [1, 8, 32, 128, 1000]
READY = 120  # seconds for a server to answer
Address = tuple[str, int]
PROMPT = "ROMEO: but soft, what light"
FEW = 100  # streams: no crowd, in which several tokens share a write
EVENTS = 100  # for each stream
REQUESTS = 1000
TOGETHER = 16
ASKED = {"answer": "a request", "refuse": "a refusal"}


async def stream(address: Address, body: bytes, found: list[tuple[float, list[float], int, str]]) -> None:
    """One request: seconds to the first event, seconds between events, tokens, and what went wrong."""
    gaps: list[float] = []
    first, tokens, wrong = 0.0, 0, ""
    try:
        reader, writer = await asyncio.open_connection(*address)
        head = f"POST /v1/completions HTTP/1.1\r\nhost: {address[0]}:{address[1]}\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        began = last = time.perf_counter()
        status = await reader.readline()
        if b" 200 " not in status:
            wrong = status.decode().strip() or "closed"
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            now = time.perf_counter()
            if b'"completion_tokens"' in line:
                tokens = json.loads(line[6:])["usage"]["completion_tokens"]
            elif line.startswith(b"data: [DONE]"):
                break
            elif not first:
                first = now - began
            else:
                gaps.append(now - last)
            last = now
        writer.close()
    except OSError as error:
        wrong = type(error).__name__
    found.append((first, gaps, tokens, wrong))


def client(address: Address, model: str, seeds: Sequence[int], tokens: int, prompt: str, answers: Any) -> None:
    async def work() -> list[tuple[float, list[float], int, str]]:
        found: list[tuple[float, list[float], int, str]] = []
        asked = {"model": model, "prompt": prompt, "max_tokens": tokens, "stream": True, "ignore_eos": True}
        asked |= {"temperature": 0.8, "stream_options": {"include_usage": True}}
        bodies = [json.dumps({**asked, "seed": seed}).encode() for seed in seeds]
        await asyncio.gather(*(stream(address, body, found) for body in bodies))
        return found

    answers.put(asyncio.run(work()))


def measure(address: Address, model: str, streams: int, tokens: int, clients: int, prompt: str) -> dict[str, Any]:
    answers: Any = multiprocessing.Queue()
    parts = [list(range(part, streams, clients)) for part in range(min(clients, streams))]
    work = [
        multiprocessing.Process(target=client, args=(address, model, part, tokens, prompt, answers)) for part in parts
    ]
    began = time.perf_counter()
    for each in work:
        each.start()
    found = [answer for _ in work for answer in answers.get()]
    seconds = time.perf_counter() - began
    for each in work:
        each.join()
    events = sum(len(gaps) + 1 for _, gaps, _, _ in found)
    gaps = [gap for _, some, _, _ in found for gap in some] or [0.0]
    firsts = [first for first, _, _, _ in found if first] or [0.0]
    delivered = sum(count for _, _, count, _ in found)
    return {
        "streams": streams,
        "errors": sum(bool(wrong) for *_, wrong in found),
        "tokens/s": round(delivered / seconds),
        "tokens": delivered,
        "events": events,
        "first p50 ms": round(1000 * float(np.percentile(firsts, 50)), 1),
        "first p95 ms": round(1000 * float(np.percentile(firsts, 95)), 1),
        "gap p50 ms": round(1000 * float(np.percentile(gaps, 50)), 1),
        "gap p95 ms": round(1000 * float(np.percentile(gaps, 95)), 1),
    }


def _stat(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()


def cpu_seconds(pid: int) -> float:
    """Of CPU that a process has used."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """Bytes of a process that are in memory."""
    return int(_stat(pid)[21]) * os.sysconf("SC_PAGE_SIZE")


def wait_for(url: str, server: "subprocess.Popen[bytes] | None") -> None:
    end = time.monotonic() + READY
    while True:
        try:
            urllib.request.urlopen(f"{url}/v1/models", timeout=5).read()
            return
        except OSError:
            if time.monotonic() > end or (server is not None and server.poll() is not None):
                raise SystemExit(f"no server answers at {url}") from None
            time.sleep(0.05)


@contextmanager
def served(
    runs: Sequence[str], *words: str, log: Any = None
) -> "Iterator[tuple[subprocess.Popen[bytes], Address, float]]":
    """`statewise serve` with these runs: the process, its address, and the seconds until it was ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address: Address = free.getsockname()
    command = [sys.executable, "-m", "statewise", "serve", *runs, "--port", str(address[1]), *words]
    began = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    try:
        wait_for(f"http://127.0.0.1:{address[1]}", server)
        yield server, address, time.perf_counter() - began
    finally:
        server.terminate()
        server.wait(30)


class Idle(Engine):
    """Takes jobs, computes nothing, and sends an event to each when it is told to, or one at once."""

    jobs: list[Job]
    kind = ""  # answer, refuse, or another: hold

    def submit(self, jobs: Sequence[Job]) -> None:
        if self.kind == "answer":
            for job in jobs:
                asyncio.get_running_loop().call_soon(job.receive, Event("a", (5,), finish="length"))
        else:
            self.jobs += jobs

    @property
    def room(self) -> int:
        return 0 if self.kind == "refuse" else 1 << 20

    def cancel(self, jobs: Sequence[Job]) -> None:
        self.jobs = [job for job in self.jobs if job not in jobs]

    @property
    def busy(self) -> bool:
        return False


async def idle_server(port: int, told: Any, heard: Any) -> None:
    """In a process of its own: measures itself."""
    spec = ServingSpec(port=port, slots=65536, queue=1 << 20)
    server = Server(spec, listen(spec))
    engine = Idle({"measured": load("shakespeare-lstm", device="cpu")}, spec)
    engine.jobs = []
    event = Event("a", (5,))
    running = asyncio.create_task(server.run(lambda: engine, lambda _: told.put("ready")))
    while True:
        words = await asyncio.to_thread(heard.get)
        if words == "end":
            break
        kind, count = words
        engine.kind = kind
        if kind in ("answer", "refuse"):
            began = time.process_time()
            told.put("begin")
            await asyncio.to_thread(heard.get)
            told.put((time.process_time() - began) / count)
            continue
        while len(engine.jobs) != count:  # those of the streams before may still be there
            await asyncio.sleep(0.01)
        if kind == "memory":
            for job in engine.jobs:  # a stream begins with its first event
                job.receive(event)
            await asyncio.sleep(1.0)
            gc.collect()
            told.put(memory(os.getpid()))
        else:
            began = time.process_time()
            for _ in range(EVENTS):
                for job in engine.jobs:
                    job.receive(event)
                for _ in range(3):  # each stream wakes, writes, and waits again
                    await asyncio.sleep(0)
            told.put((time.process_time() - began) / (EVENTS * count))
    server.stop()
    server.stop()
    await running


def idle_process(port: int, told: Any, heard: Any) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(idle_server(port, told, heard))


class Counting(asyncio.Protocol):
    """A client that throws away what it reads, and counts the events."""

    events = 0

    def data_received(self, data: bytes) -> None:
        Counting.events += data.count(b"data: ")


async def asked_and_answered(address: Address, told: Any, heard: Any, kind: str) -> float:
    """The server's CPU seconds for each of many requests, some of them at once."""
    body = json.dumps({"prompt": PROMPT, "max_tokens": 1, "stream": True, "seed": 1, "temperature": 0.8}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {address[0]}:{address[1]}\r\ncontent-type: application/json\r\n"
    head += f"connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    status = b" 200 " if kind == "answer" else b" 429 "

    async def several(count: int) -> None:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(head.encode() + body)
            said = await reader.read()
            writer.close()
            if status not in said.split(b"\r\n", 1)[0]:
                raise SystemExit(f"expected {status.decode()}, the server said: {said[:200].decode(errors='replace')}")

    heard.put((kind, REQUESTS))
    await asyncio.to_thread(told.get)
    await asyncio.gather(*(several(REQUESTS // TOGETHER) for _ in range(TOGETHER)))
    heard.put("over")
    return float(await asyncio.to_thread(told.get)) * REQUESTS / (REQUESTS // TOGETHER * TOGETHER)


async def opened(address: tuple[str, int], count: int, told: Any, heard: Any, kind: str) -> Any:
    """What the server measures while so many streams are open. What comes is read and thrown away."""
    body = json.dumps({"prompt": PROMPT, "max_tokens": 1000, "stream": True, "seed": 1}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {address[0]}:{address[1]}\r\ncontent-type: application/json\r\n"
    head += "accept: application/json\r\nuser-agent: benchmark/1\r\nauthorization: Bearer none\r\n"
    asked = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    loop, made = asyncio.get_running_loop(), []
    for _ in range(count):
        transport, _ = await loop.create_connection(Counting, *address)
        transport.write(asked)
        made.append(transport)
    Counting.events = 0
    heard.put((kind, count))
    found = await asyncio.to_thread(told.get)
    expected, patience = count * (EVENTS if kind == "time" else 1), time.monotonic() + 20
    while Counting.events < expected and time.monotonic() < patience:
        await asyncio.sleep(0.1)
    if Counting.events != expected:
        raise SystemExit(f"{Counting.events} events arrived, expected {expected}: streams were merged or lost")
    for transport in made:
        transport.abort()
    await asyncio.sleep(1.0)
    return found


def overhead(port: int, streams: int) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    context = multiprocessing.get_context("spawn")
    told, heard = context.Queue(), context.Queue()
    server = context.Process(target=idle_process, args=(port, told, heard))
    server.start()
    address = ("127.0.0.1", port)
    told.get()
    try:
        asyncio.run(opened(address, FEW, told, heard, "memory"))  # what the first streams need once
        few, many = (asyncio.run(opened(address, count, told, heard, "memory")) for count in (FEW, FEW + streams))
        times = [asyncio.run(opened(address, FEW, told, heard, "time")) for _ in range(5)]
        kinds = {
            kind: [asyncio.run(asked_and_answered(address, told, heard, kind)) for _ in range(3)] for kind in ASKED
        }
    finally:
        heard.put("end")
        server.join(30)
    return {
        "streams": streams,
        "KB a stream": round((many - few) / streams / 1000, 1),
        "CPU µs an event (best, median of 5)": [round(1e6 * time, 1) for time in (min(times), sorted(times)[2])],
        **{f"CPU µs {ASKED[kind]} (best of 3)": round(1e6 * min(seconds)) for kind, seconds in kinds.items()},
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("run", nargs="?", help="a run, or with --url the name of a served model")
    parser.add_argument("--only", choices=["overhead"])
    parser.add_argument("--url", help="of a server that runs already")
    parser.add_argument("--streams", type=positive, nargs="+", default=STREAMS)
    parser.add_argument("--tokens", type=positive, default=64)
    parser.add_argument("--clients", type=positive, default=1, help="processes")
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--port", type=positive, default=8123, help="of the server whose overhead is measured")
    asked = parser.parse_args()
    if asked.only == "overhead":
        found = overhead(asked.port, 4000)
        for name, value in found.items():
            print(f"{name}: {value}")
        write(asked.json, [found])
        return
    if asked.run is None:
        parser.error("name a run, e.g. shakespeare-lstm")
    with ExitStack() as ending:
        if asked.url is None:
            most, name = str(max(asked.streams)), "measured"
            starting = served([asked.run], "--name", name, "--slots", most, "--queue", most)
            server, address, ready = ending.enter_context(starting)
            pid: int | None = server.pid
        else:
            place, name, pid = urlparse(asked.url), asked.run, None
            address, began = (place.hostname or "127.0.0.1", place.port or 80), time.perf_counter()
            wait_for(asked.url, None)
            ready = time.perf_counter() - began
        measure(address, name, min(8, max(asked.streams)), 16, 1, asked.prompt)
        rows = []
        for streams in asked.streams:
            before = 0.0 if pid is None else cpu_seconds(pid)
            row = measure(address, name, streams, asked.tokens, asked.clients, asked.prompt)
            if pid is not None:
                row["CPU µs a token"] = round(1e6 * (cpu_seconds(pid) - before) / max(1, row["tokens"]))
                row["MB resident"] = round(memory(pid) / 1e6)
            rows.append(row)
    table = Table(title=f"{asked.run}: {asked.tokens} tokens a stream; ready after {ready:.1f} s", title_justify="left")
    for column in rows[0]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(f"{value:,}" for value in row.values()))
    console().print(table)
    write(asked.json, rows, run=asked.run, ready=ready)


if __name__ == "__main__":
    main()

"""Hard times for a server: more than fits, slow clients, two models at once, and a signal in the middle.

    python benchmarks/serve_hard.py                     every part, in two or three minutes
    python benchmarks/serve_hard.py --only overload slow

- overload: 256 streams at once, 32 rows and 64 places to wait. The rest is refused at once; what was accepted finishes.
- together: 32 streams of 128 tokens of each of two models at the same time.
- slow: 100 half requests, 100 bodies of a byte a second and 50 readers of a byte a second; what do others wait for?
- shutdown: SIGTERM with 32 streams open, with 10 seconds to finish and with none.
"""

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from command_line import console, options, write
from rich.table import Table
from serve_http import Address, memory, served

RUNS = ["shakespeare-lstm", "shakespeare-transformer"]
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
PATIENCE = 60.0  # seconds after which a connection counts as forgotten


class Answer(NamedTuple):
    status: int
    first: float  # seconds to the first byte
    gaps: list[float]
    tokens: int
    whole: bool  # a stream that was not cut off, or a refusal
    body: bytes


def request(**asked: Any) -> bytes:
    fields = {"prompt": "ROMEO: but soft,", "stream": True, "ignore_eos": True, "temperature": 0.8, **asked}
    if fields["stream"]:
        fields["stream_options"] = {"include_usage": True}
    body = json.dumps(fields).encode()
    return HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body


async def ask(address: Address, data: bytes) -> Answer:
    reader, writer = await asyncio.open_connection(*address)
    began = last = time.perf_counter()
    first, gaps, lines, tokens = 0.0, [], [], 0
    with suppress(ConnectionResetError):
        writer.write(data)
        while line := await reader.readline():
            now = time.perf_counter()
            first = first or now - began
            if line.startswith(b"data: {"):
                gaps.append(now - last)
                last = now
            if b'"completion_tokens"' in line and line.startswith(b"data: "):
                tokens = json.loads(line[6:])["usage"]["completion_tokens"]
            lines.append(line)
    writer.close()
    said = b"".join(lines)
    status = int(said.split(b" ", 2)[1]) if said else 0
    return Answer(status, first, gaps[1:], tokens, status != 200 or said.endswith(b"0\r\n\r\n") or not gaps, said)


async def gauge(address: Address, name: str) -> float:
    said = (await ask(address, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")).body
    (line,) = (line for line in said.decode().split("\n") if line.startswith(f"statewise_{name} "))
    return float(line.split()[1])


def high(values: Sequence[float], share: float = 95) -> float:
    return round(1000 * float(np.percentile(values or [0.0], share)), 1)


async def _overload(address: Address) -> dict[str, Any]:
    data = [request(model=RUNS[0], max_tokens=64, seed=seed) for seed in range(256)]
    answers = await asyncio.gather(*(ask(address, one) for one in data))
    accepted = [one for one in answers if one.status == 200]
    refused = [one for one in answers if one.status == 429]
    return {
        "accepted": len(accepted),
        "finished": sum(one.tokens == 64 and one.whole for one in accepted),
        "refused with Retry-After": sum(b"retry-after:" in one.body for one in refused),
        "other answers": len(answers) - len(accepted) - len(refused),
        "refusal p50 ms": high([one.first for one in refused], 50),
        "refusal p95 ms": high([one.first for one in refused]),
        "first token p95 ms": high([one.first for one in accepted]),
    }


def overload() -> dict[str, Any]:
    with served(RUNS[:1], "--slots", "32", "--queue", "64") as (_, address, _):
        asyncio.run(ask(address, request(model=RUNS[0], max_tokens=8)))
        return asyncio.run(_overload(address))


async def _together(address: Address) -> dict[str, Any]:
    began = time.perf_counter()

    async def one_model(name: str) -> tuple[list[Answer], float]:
        data = [request(model=name, max_tokens=128, seed=seed) for seed in range(32)]
        answers = await asyncio.gather(*(ask(address, one) for one in data))
        return answers, time.perf_counter() - began

    found: dict[str, Any] = {}
    for name, (answers, seconds) in zip(RUNS, await asyncio.gather(*map(one_model, RUNS))):
        found[f"{name} tokens/s"] = round(sum(one.tokens for one in answers) / seconds)
        found[f"{name} gap p95 ms"] = high([gap for one in answers for gap in one.gaps])
    return found


def together() -> dict[str, Any]:
    with served(RUNS) as (_, address, _):
        for name in RUNS:
            asyncio.run(ask(address, request(model=name, max_tokens=8)))
        return asyncio.run(_together(address))


async def _held(address: Address, data: bytes) -> float:
    """Seconds until the server ends a connection that sends `data` and then a byte a second, if it is a body."""
    loop, began = asyncio.get_running_loop(), time.perf_counter()
    with socket.socket() as client, suppress(OSError):
        client.setblocking(False)
        await loop.sock_connect(client, address)
        await loop.sock_sendall(client, data)
        while time.perf_counter() - began < PATIENCE:
            with suppress(TimeoutError):
                if not await asyncio.wait_for(loop.sock_recv(client, 4096), 1.0):
                    break
            if data.endswith(b"{"):
                await loop.sock_sendall(client, b" ")
    return time.perf_counter() - began


async def _reader(address: Address, *, bytes_a_second: int | None) -> None:
    """Ask for a long text, and read it: all of it, or so much."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client, suppress(OSError):
        client.setblocking(False)
        if bytes_a_second is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await loop.sock_connect(client, address)
        await loop.sock_sendall(client, request(model=RUNS[0], max_tokens=4000, logprobs=20))
        while await loop.sock_recv(client, bytes_a_second or 1 << 16):
            if bytes_a_second is not None:
                await asyncio.sleep(1.0)


async def _others(address: Address, count: int = 60) -> list[float]:
    took = []
    for seed in range(count):
        began = time.perf_counter()
        await ask(address, request(model=RUNS[0], max_tokens=16, seed=seed, stream=False))
        took.append(time.perf_counter() - began)
    return took


async def _slow(address: Address, pid: int) -> dict[str, Any]:
    quick = [asyncio.create_task(_reader(address, bytes_a_second=None)) for _ in range(50)]
    await asyncio.sleep(0.5)
    beside = await _others(address)
    for one in quick:
        one.cancel()
    while await gauge(address, "open_requests"):
        await asyncio.sleep(0.1)
    held, began = memory(pid), time.perf_counter()
    half = asyncio.gather(*(_held(address, HEAD) for _ in range(100)))
    bodies = asyncio.gather(*(_held(address, HEAD + b"content-length: 100000\r\n\r\n{") for _ in range(100)))
    readers = [asyncio.create_task(_reader(address, bytes_a_second=1)) for _ in range(50)]
    await asyncio.sleep(0.5)
    during = await _others(address)
    most = memory(pid)
    while await gauge(address, "requests_running"):
        await asyncio.sleep(0.1)
    dropped = time.perf_counter() - began
    for one in readers:
        one.cancel()
    return {
        "others p95 ms beside 50 quick readers": high(beside),
        "others p95 ms beside 250 slow clients": high(during),
        "half requests ended after s, at most": round(max(await half), 1),
        "slow bodies ended after s, at most": round(max(await bodies), 1),
        "slow readers gone after s": round(dropped, 1),
        "memory grew by MB": round((most - held) / 1e6, 1),
    }


def slow() -> dict[str, Any]:
    with served(RUNS[:1], "--slots", "64") as (server, address, _):
        return asyncio.run(_slow(address, server.pid))


async def _shutdown(address: Address, server: "subprocess.Popen[bytes]") -> dict[str, Any]:
    data = [request(model=RUNS[0], max_tokens=1500, seed=seed) for seed in range(32)]
    work = [asyncio.create_task(ask(address, one)) for one in data]
    while await gauge(address, "requests_running") < len(data):
        await asyncio.sleep(0.02)
    server.terminate()
    began = time.perf_counter()
    await asyncio.sleep(0.1)
    late = (await ask(address, request(model=RUNS[0], max_tokens=1))).status
    answers = await asyncio.gather(*work)
    while server.poll() is None:
        await asyncio.sleep(0.02)
    return {
        "finished": sum(one.tokens == 1500 for one in answers),
        "told": sum(b'"error"' in one.body for one in answers),
        "new request": late,
        "ended after s": round(time.perf_counter() - began, 1),
        "exit code": server.returncode,
    }


def shutdown() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for drain in (10, 0):
        with served(RUNS[:1], "--set", f"drain_seconds={drain}") as (server, address, _):
            asyncio.run(ask(address, request(model=RUNS[0], max_tokens=8)))
            told = asyncio.run(_shutdown(address, server))
            found |= {f"drain {drain} s: {name}": value for name, value in told.items()}
    return found


PARTS = {"overload": overload, "together": together, "slow": slow, "shutdown": shutdown}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", choices=list(PARTS), nargs="+", default=list(PARTS))
    asked = parser.parse_args()
    rows = []
    for name in asked.only:
        found = PARTS[name]()
        table = Table("what", "seen", title=name, title_justify="left")
        for what, seen in found.items():
            table.add_row(what, f"{seen:,}")
        console().print(table)
        rows.append({"part": name, **found})
    write(asked.json, rows)


if __name__ == "__main__":
    main()

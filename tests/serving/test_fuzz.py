"""Bytes that are no HTTP, or almost: every connection is answered or closed, nothing is logged, the server goes on."""

import asyncio
import json
import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from asking import Client, Running, running

RECEIVE = 1.0  # seconds for a request to arrive
PATIENCE = 60.0  # seconds after which a connection that was neither answered nor closed is forgotten
QUIET = 0.5  # seconds without another byte after which an answer is over
AT_ONCE = 200
PLAIN = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
JSON = b"Host: localhost\r\nContent-Type: application/json\r\n"
ANSWERED = {200, 201, 400, 403, 404, 405, 408, 409, 411, 413, 415, 417, 422, 429, 431, 501, 505}

Fragments = list[bytes]
Case = tuple[str, Fragments]


def post(path: str, **body: object) -> bytes:
    content = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\n".encode() + JSON + b"Content-Length: %d\r\n\r\n" % len(content) + content


def chunked(*sizes: bytes) -> bytes:
    """A body in chunks, each of one byte, with these words where its size should be."""
    head = b"POST /tokenize HTTP/1.1\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(size + b"\r\n{\r\n" for size in sizes)


VALID = [
    PLAIN,
    b"HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n",
    post("/v1/completions", model="lstm", prompt="the cat", max_tokens=3),
    post("/v1/completions", model="lstm", prompt="the cat", max_tokens=3, stream=True, logprobs=2),
    post("/v1/responses", model="lstm", input="the cat", max_output_tokens=3),
    post("/v1/states", model="lstm", prompt="the cat", id="fuzzed"),
    post("/tokenize", model="lstm", prompt="the cat"),
    b"PUT /v1/states/x/content?model=lstm HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/octet-stream\r\nContent-Length: 8\r\n\r\n\0\0\0\0\0\0\0\0",
    b"POST /tokenize HTTP/1.1\r\n" + JSON + b'Transfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n3\r\n:1}\r\n0\r\n\r\n',
    b"POST /tokenize HTTP/1.1\r\n" + JSON + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
]
WORDS = [
    *(b"\r\n", b"\n", b"\r", b"\0", b":", b" ", b"\t", b"\xff", b"HTTP/9.9", b"HTTP/1.1", b"Host: evil.example\r\n"),
    *(b"Content-Length: 99999999999999999999\r\n", b"Content-Length: -1\r\n", b"Content-Length: 5, 6\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n"),
    *(b"Authorization: Bearer \xff\r\n", b"X-Session-ID: ../../x\r\n", b"Origin: null\r\n", b"%00%2e%2e/", b"\x80\x81"),
    *(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"Expect: 100-continue\r\n",
    ),
]
SIZES = [
    b"1",
    b"0",
    b"-1",
    b"g",
    b"",
    b"ffffffffffffffffffff",
    b"1;x=" + b"y" * 300,
    b"0x1",
    b" 1",
    b"1 ",
    b"\xff",
    b"+1",
]


def _truncated(rng: random.Random, data: bytes) -> Fragments:
    return [data[: rng.randrange(len(data))]]


def _split(rng: random.Random, data: bytes) -> Fragments:
    cuts = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(1, 12)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)])]


def _pipelined(rng: random.Random, data: bytes) -> Fragments:
    return [b"".join(rng.choice(VALID) for _ in range(rng.randrange(1, 20))) + data]


def _flipped(rng: random.Random, data: bytes) -> Fragments:
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        changed[rng.randrange(len(data))] = rng.randrange(256)
    return [bytes(changed)]


def _inserted(rng: random.Random, data: bytes) -> Fragments:
    for _ in range(rng.randrange(1, 4)):
        at = rng.choice([rng.randrange(len(data)), data.index(b"\r\n") + 2])
        data = data[:at] + rng.choice(WORDS) * rng.choice([1, 1, 2, 50]) + data[at:]
    return [data]


def _large_head(rng: random.Random, data: bytes) -> Fragments:
    size = rng.choice([1 << 10, 1 << 15, 1 << 16, 1 << 17])
    at = data.index(b"\r\n") + 2
    many = b"".join(b"X-%d: %d\r\n" % (i, i) for i in range(size // 10))
    large = rng.choice([b"X-A: " + b"a" * size + b"\r\n", many, b"Cookie: " + b"\xe9" * size + b"\r\n", b"a" * size])
    return _split(rng, data[:at] + large + data[at:])


def _bad_chunks(rng: random.Random, data: bytes) -> Fragments:
    return [chunked(*(rng.choice(SIZES) for _ in range(rng.randrange(1, 4))))]


def _slow(rng: random.Random, data: bytes) -> Fragments:
    """A byte at a time, and then nothing."""
    return [bytes([byte]) for byte in data[: rng.randrange(min(60, len(data)))]]


def _noise(rng: random.Random, data: bytes) -> Fragments:
    return [rng.randbytes(rng.randrange(1, 300))]


CHANGES: list[Callable[[random.Random, bytes], Fragments]] = [
    *(_truncated, _split, _pipelined, _flipped, _inserted, _large_head, _bad_chunks, _slow, _noise)
]


async def _tried(port: int, fragments: Fragments, leave: bool) -> bytes | None:
    """What came; None if the connection was neither answered nor closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = b""
    try:
        for fragment in fragments:
            writer.write(fragment)
            if len(fragments) > 1:
                await asyncio.sleep(0.001)
        if leave:
            return said
        while part := await asyncio.wait_for(reader.read(1 << 16), QUIET if said else PATIENCE):
            said += part
        return said
    except TimeoutError:
        return said or None
    except OSError:  # reset: what was sent is not read any more
        return said
    finally:
        writer.transport.abort()


async def _fuzzed(port: int, cases: list[Case], rng: random.Random) -> tuple[Counter[int], list[str]]:
    statuses: Counter[int] = Counter()
    wrong: list[str] = []
    places = asyncio.Semaphore(AT_ONCE)

    async def attempt(name: str, fragments: Fragments, leave: bool) -> None:
        async with places:
            said = await _tried(port, fragments, leave)
        shown = f"{name}: {b''.join(fragments)[:300]!r}"
        if said is None:
            wrong.append(f"no answer and no end: {shown}")
            return
        found = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", said)]
        statuses.update(found)
        if said and not said.startswith(b"HTTP/1.1 "):
            wrong.append(f"not a response: {said[:100]!r} to {shown}")
        if set(found) - ANSWERED - {100} or b"Traceback" in said or b"site-packages" in said:
            wrong.append(f"{found}: {said[:300]!r} to {shown}")

    await asyncio.gather(*(attempt(name, fragments, rng.random() < 0.1) for name, fragments in cases))
    return statuses, wrong


@pytest.fixture
def small(text_runs: dict[str, Path]) -> Iterator[Running]:
    with running(text_runs, slots=16, queue=4096, receive_seconds=RECEIVE) as made:
        yield made


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_bytes_that_are_not_quite_http(small: Running, caplog: pytest.LogCaptureFixture, count: int) -> None:
    rng = random.Random(count)
    cases: list[Case] = []
    for _ in range(count):
        change = rng.choice(CHANGES)
        cases.append((change.__name__, change(rng, rng.choice(VALID))))
    with caplog.at_level(logging.WARNING):
        statuses, wrong = asyncio.run(_fuzzed(small.client.port, cases, rng))
        client: Client = small.client
        assert client.ask("GET", "/health").status == 200
        client.until_idle()
        assert client.complete(prompt="the", max_tokens=2)["choices"]
    assert not wrong, "\n".join([f"{len(wrong)} of {count}", *wrong[:5]])
    assert {200, 400, 404, 431} <= set(statuses)
    # The client's own transport warns where the server has closed a connection that it still writes to.
    assert [one for one in caplog.records if one.name != "asyncio" or one.levelno >= logging.ERROR] == []

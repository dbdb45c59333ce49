"""Clients that leave or do not read, more requests than places, signals, keys, and an engine that dies."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from asking import Client, Running, Said, process, running
from covering import by_day

from statewise import cli
from statewise.serving.http import completion, exchange
from statewise.serving.scheduler import Scheduler
from statewise.specs import ServingSpec

LONG = {"model": "lstm", "prompt": "the cat", "max_tokens": 4000, "seed": 1, "ignore_eos": True}


def raw_request(port: int, **asked: Any) -> socket.socket:
    body = json.dumps({**LONG, **asked}).encode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side ends the connection, in whatever way."""
    parts = []
    with connection, suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


@pytest.fixture(scope="module")
def small(text_runs: dict[str, Path]) -> Iterator[Running]:
    """Four rows, four places to wait."""
    with running(text_runs, slots=4, queue=4, drain_seconds=0.5, receive_seconds=1.0) as made:
        yield made


@contextmanager
def slowed(monkeypatch: pytest.MonkeyPatch, seconds: float = 0.01) -> Iterator[None]:
    """Every turn of the engine takes so much longer, so that texts are still running when something happens."""
    turn = Scheduler.turn

    def slow_turn(self: Scheduler) -> bool:
        busy = turn(self)
        if busy:
            time.sleep(seconds)
        return busy

    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "turn", slow_turn)
        yield


# ------------------------------------------------------------------ clients that leave


@pytest.mark.parametrize("clients", [72, pytest.param(504, marks=pytest.mark.slow)])
def test_clients_that_leave_give_their_rows_back(small: Running, monkeypatch: pytest.MonkeyPatch, clients: int) -> None:
    """Streams and whole answers, running and waiting, at random tokens. A row is free after one step, and another text
    is not changed.
    """
    client, engine, rng = small.client, small.engine, random.Random(0)
    asked = {"prompt": "the dog", "max_tokens": 60 * clients // 72, "seed": 2, "ignore_eos": True}
    alone = client.complete(**asked)["choices"][0]["text"]
    files, turns, late, held = client.metric("process_open_files"), [0], [], []
    cancel, turn, forget = engine.cancel, Scheduler.turn, Scheduler.cancel

    def counted(self: Scheduler) -> bool:
        turns[0] += 1
        return turn(self)

    def noted(jobs: Any) -> None:
        given_up[id(jobs[0])] = turns[0]
        cancel(jobs)

    def forgotten(self: Scheduler, jobs: Any) -> None:
        late.extend(turns[0] - given_up[id(job)] for job in jobs)
        forget(self, jobs)

    given_up: dict[int, int] = {}
    monkeypatch.setattr(Scheduler, "turn", counted)
    monkeypatch.setattr(Scheduler, "cancel", forgotten)
    monkeypatch.setattr(engine, "cancel", noted)
    with slowed(monkeypatch, 0.002), ThreadPoolExecutor(1) as pool:
        survivor = pool.submit(client.complete, **asked)
        for _ in range(clients // 6):
            leaving = [raw_request(client.port, stream=bool(i % 2)) for i in range(6)]
            for connection in leaving:
                time.sleep(rng.uniform(0, 0.02))
                connection.close()
            held.append(client.metric("state_bytes"))
        assert survivor.result()["choices"][0]["text"] == alone
        assert client.until_idle() < 1.0
    assert len(late) > clients // 2
    assert max(late) <= 1
    half = len(held) // 2
    assert max(held[half:]) <= max(held[:half]), "the memory of states grew"
    assert client.metric("process_open_files") <= files


def test_a_client_that_leaves_several_requests_is_no_error(small: Running, caplog: pytest.LogCaptureFixture) -> None:
    """One connection, one request behind the other: only the first has begun when the client leaves."""
    for stream in (True, False):
        connection = raw_request(small.client.port, stream=stream)
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        if stream:
            assert connection.recv(10)
        while not small.client.metric("requests_running"):
            time.sleep(0.01)
        connection.close()
        small.client.until_idle()
    assert caplog.text == ""


def test_what_is_no_http_does_not_disturb_the_answer_before_it(small: Running) -> None:
    whole = small.client.stream(**{**LONG, "max_tokens": 40})
    connection = raw_request(small.client.port, stream=True, max_tokens=40)
    connection.sendall(b"\0 nonsense\r\n\r\n")
    said = read_all(connection)
    assert said.count(b"HTTP/1.1 ") == 1
    assert said.endswith(b"0\r\n\r\n")
    texts = [json.loads(line[6:])["choices"][0]["text"] for line in said.split(b"\n") if line.startswith(b"data: {")]
    assert "".join(texts) == "".join(json.loads(event)["choices"][0]["text"] for event in whole[:-1])


def test_a_client_that_does_not_read_is_dropped(text_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores are long, so the buffers of the system are soon full."""
    with running(text_runs, unread_bytes=4096, ping_seconds=1.0) as live:
        connections = [raw_request(live.client.port, stream=True, logprobs=20) for _ in range(2)]
        began = time.monotonic()
        while live.client.metric("open_requests"):
            assert time.monotonic() - began < 20
            time.sleep(0.05)
        for connection in connections:
            assert b"[DONE]" not in read_all(connection)
        live.client.until_idle()


def test_a_half_request_is_closed(small: Running) -> None:
    began = time.monotonic()
    port = small.client.port
    parts = [b"", b"GET /hea", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"]
    opened = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(4)]
    for connection, part in zip(opened, parts):
        connection.sendall(part)
    head = (
        b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    opened[3].sendall(head)
    assert small.client.ask("GET", "/health").status == 200
    for connection in opened[:3]:
        assert read_all(connection) == b""
    assert opened[3].recv(1000).startswith(b"HTTP/1.1 408")
    assert time.monotonic() - began < 5
    for connection in opened:
        connection.close()


def test_a_silent_stream_gets_comments(text_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with running(text_runs, slots=1, queue=4, ping_seconds=0.5) as live, slowed(monkeypatch, 0.01):
        first = raw_request(live.client.port, stream=True)
        time.sleep(0.2)
        waiting = raw_request(live.client.port, stream=True, max_tokens=2)
        said = b""
        while b": ping" not in said:
            said += waiting.recv(1000)
        first.close()
        while b"[DONE]" not in said:
            said += waiting.recv(1000)
        waiting.close()


def test_in_a_crowd_tokens_share_a_write(text_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every request were above the number from which streams pause between two writes."""
    asked = {"prompt": "the cat", "max_tokens": 100, "seed": 1, "ignore_eos": True}
    with running(text_runs) as live, slowed(monkeypatch):
        each = live.client.chunks(**asked)
        monkeypatch.setattr(exchange, "_CROWD", 0)
        monkeypatch.setattr(exchange, "_PAUSE", 0.25)
        shared = live.client.chunks(**asked)
        monkeypatch.setattr(exchange, "_PAUSE", 1000.0)  # only what is written once a second
        seldom = live.client.chunks(**asked)
    assert len(each) > 50
    assert 4 <= len(shared) < 20
    assert 2 <= len(seldom) < 6
    first, *_ = texts = [[chunk["choices"][0]["text"] for chunk in chunks] for chunks in (each, shared, seldom)]
    assert len({"".join(parts) for parts in texts}) == 1
    assert texts[1][0] == first[0], "the first token is not held back"


# ------------------------------------------------------------------ more than fits


def test_what_does_not_fit_is_refused_at_once(small: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    client = small.client

    def ask(number: int) -> Said:
        return client.ask("POST", "/v1/completions", {**LONG, "max_tokens": 40, "seed": number})

    with slowed(monkeypatch), ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(ask, range(24)))
    refused = [said for said in answers if said.status == 429]
    assert {said.status for said in answers} == {200, 429}
    assert sum(said.status == 200 for said in answers) >= 8
    for said in refused:
        assert said.error["type"] == "rate_limit_error"
        assert int(said.headers["retry-after"]) >= 1
    client.until_idle()
    assert ask(1).status == 200


def test_a_text_ends_at_its_deadline(text_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with running(text_runs, request_seconds=0.4) as live, slowed(monkeypatch):
        said = live.client.ask("POST", "/v1/completions", LONG)
        assert said.status == 503
        assert said.error["code"] == "deadline"
        streamed = live.client.stream(**LONG)
        assert json.loads(streamed[-2])["error"]["code"] == "deadline"
        live.client.until_idle()


# ------------------------------------------------------------------ who may ask


def test_a_key_is_asked_for_everywhere_but_for_health(text_runs: dict[str, Path], capfd: Any) -> None:
    with running(text_runs, keys=("the-right-key",)) as live:
        nobody = Client(live.client.port)
        assert nobody.ask("GET", "/health").status == 200
        for path in (
            "/ready",
            "/metrics",
            "/v1/models",
            "/version",
            "/openapi.json",
            "/v1/states",
            "/nowhere",
            "/health/",
        ):
            said = nobody.ask("GET", path)
            assert said.status == 401
            assert said.error["type"] == "authentication_error"
            assert said.headers["www-authenticate"] == "Bearer"
        for key in ("wrong", "the-right-ke", "the-right-key2", "THE-RIGHT-KEY", ""):
            assert nobody.ask("GET", "/v1/models", authorization=f"Bearer {key}").status == 401
        assert nobody.ask("GET", "/v1/models", authorization="the-right-key").status == 401
        assert nobody.ask("GET", "/v1/models", authorization="Bearer the-right-key").status == 200
        assert "the-right-key" not in repr(live.server.service.spec)
    assert "the-right-key" not in "".join(capfd.readouterr())


def test_pages_of_other_servers_are_refused(small: Running) -> None:
    ask = small.client.ask
    assert ask("GET", "/v1/models", origin="https://evil.example").status == 403
    assert ask("OPTIONS", "/v1/completions", origin="https://evil.example").status == 403
    same = ask("GET", "/v1/models", origin=f"http://127.0.0.1:{small.client.port}")
    assert same.status == 200
    assert not [name for name in same.headers if name.startswith("access-control")]
    assert ask("GET", "/v1/models", host="evil.example").status == 400
    assert ask("GET", "/v1/models", host=f"localhost:{small.client.port}").status == 200


def test_another_address_needs_a_key() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org"):
        with pytest.raises(ValueError, match="there is no key"):
            ServingSpec(host=host)
        assert not ServingSpec(host=host, keys=("long-enough",)).is_loopback
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert ServingSpec(host=host).is_loopback
    with pytest.raises(ValueError, match="at least 8"):
        ServingSpec(keys=("short",))


# ------------------------------------------------------------------ the end


def test_a_signal_finishes_what_runs(text_runs: dict[str, Path]) -> None:
    with process(text_runs["lstm"], "--set", "drain_seconds=30") as (started, client), ThreadPoolExecutor(4) as pool:
        streams = [raw_request(client.port, stream=True, max_tokens=2000, seed=i) for i in range(4)]
        for stream in streams:
            assert stream.recv(10)
        texts = [pool.submit(read_all, stream) for stream in streams]
        started.send_signal(signal.SIGTERM)
        while client.ask("GET", "/ready").status == 200:
            time.sleep(0.01)
        late = client.ask("POST", "/v1/completions", {"prompt": "a"})
        assert late.status == 503
        assert late.headers["retry-after"]
        assert client.ask("GET", "/ready").status == 503
        assert client.ask("GET", "/health").status == 200
        assert all(text.result().endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") for text in texts)
        assert started.wait(10) == 143


def test_a_second_signal_ends_at_once(text_runs: dict[str, Path]) -> None:
    endless = ("--set", "drain_seconds=60", "--set", "max_tokens=1000000000", "--set", "max_prompt=1000001000")
    with process(text_runs["lstm"], *endless) as (started, client), ThreadPoolExecutor(1) as pool:
        stream = raw_request(client.port, stream=True, max_tokens=10**9)
        assert stream.recv(10)
        said = pool.submit(read_all, stream)  # a client that reads: another would be dropped
        started.send_signal(signal.SIGINT)
        time.sleep(0.4)
        assert started.poll() is None
        started.send_signal(signal.SIGINT)
        assert b'"stopping"' in said.result()
        assert started.wait(10) == 130


@pytest.mark.parametrize("number", by_day([signal.SIGINT, signal.SIGTERM], signal.SIGTERM))
def test_signals_after_the_last_text_do_not_change_the_exit_code(text_runs: dict[str, Path], number: int) -> None:
    """Until the process is gone: the interpreter takes a while to end."""
    with process(text_runs["lstm"]) as (started, _):
        while started.poll() is None:
            with suppress(ProcessLookupError):
                started.send_signal(number)
            time.sleep(0.01)
        assert started.wait(10) == 128 + number
        assert started.stderr is not None
        assert started.stderr.read() == ""


def test_an_engine_that_dies_is_told_and_ends_the_process(
    text_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that raises fails its texts alone; the thread's end is the end of the server."""
    with running(text_runs) as live:
        client, scheduler = live.client, live.engine._schedulers["lstm"]

        def raises(error: BaseException) -> Callable[[], bool]:
            def turn() -> bool:
                raise error

            return turn

        with monkeypatch.context() as patch:
            patch.setattr(scheduler, "turn", raises(RuntimeError("a step that fails")))
            said = client.ask("POST", "/v1/completions", LONG)
        assert said.status == 500
        assert "RuntimeError" in said.error["message"]
        assert client.complete(prompt="the", max_tokens=2)["choices"]
        stream = raw_request(client.port, stream=True)
        assert stream.recv(10)
        monkeypatch.setattr(threading, "excepthook", lambda _: None)
        monkeypatch.setattr(scheduler, "turn", raises(KeyboardInterrupt()))
        while live.engine.alive:
            time.sleep(0.01)
        time.sleep(0.4)
        assert client.ask("GET", "/health").status == 503
        assert b'"engine_failed"' in read_all(stream)


def test_an_error_of_our_own_has_the_same_form(
    small: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before a response begins; afterwards the connection ends, which a client notices."""
    client = small.client
    with monkeypatch.context() as patch:
        patch.setattr(small.engine, "gauges", lambda: 1 / 0)
        said = client.ask("GET", "/metrics")
    assert said.status == 500
    assert said.error["type"] == "server_error"
    assert "ZeroDivisionError" not in said.error["message"]
    with monkeypatch.context() as patch, slowed(monkeypatch):  # slowly, so that the first token is sent before the end
        patch.setattr(completion.Chunks, "end", lambda self: 1 / 0)
        broken = read_all(raw_request(client.port, stream=True, max_tokens=20))
    assert broken.startswith(b"HTTP/1.1 200")
    assert not broken.endswith(b"0\r\n\r\n")
    assert "ZeroDivisionError" in caplog.text
    client.until_idle()


def test_torch_is_loaded_with_sleeping_threads_and_a_small_cache(text_runs: dict[str, Path]) -> None:
    """Its libraries read the variables once."""
    code = """if True:
        import os, sys
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "torch":
                    print(os.environ["OMP_WAIT_POLICY"], os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"], flush=True)
                    os._exit(0)
        sys.meta_path.insert(0, Finder())
        from statewise import cli
        cli._run()
    """
    mine = {"OMP_WAIT_POLICY": "ACTIVE", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "200"}
    variables = {name: value for name, value in os.environ.items() if name not in mine}
    command = [sys.executable, "-c", code, "serve", str(text_runs["lstm"]), "--port", "0"]
    for given, expected in (({}, "PASSIVE 16"), (mine, "ACTIVE 200")):  # the user's own choice is kept
        done = subprocess.run(command, env=variables | given, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


def test_what_is_wrong_with_the_command_is_said_before_anything_starts(
    text_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["statewise", "serve", *words])
        assert cli._run() == 2
        said = capsys.readouterr()
        assert said.out == ""
        return said.err

    run = str(text_runs["lstm"])
    assert "STATEWISE_KEY" in refused(run, "--host", "0.0.0.0")
    assert "drain_seconds" in refused(run, "--set", "drain_second=3")
    assert "slots" in refused(run, "--slots", "0")
    assert "two runs have one name" in refused(run, run)
    assert "2 names for 1 runs" in refused(run, "--name", "a", "--name", "b")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "in use" in refused(run, "--port", str(taken.getsockname()[1]))
    assert "is not a folder" in refused("no/such/run", "--port", "0")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "[serve]" in refused(run)

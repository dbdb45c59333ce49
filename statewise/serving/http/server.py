"""The process: a socket, connections with deadlines, signals, and the end."""

import asyncio
import json
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httptools
import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from statewise.serving.base import AnyEngine
from statewise.serving.http.app import Path, make_app
from statewise.serving.http.error import HttpError
from statewise.serving.http.service import Service
from statewise.serving.memory import prepare, settle
from statewise.specs import ServingSpec, UserError, option

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HEAD_BYTES = 64 << 10  # of a request, before its body
_KEEP_ALIVE = 5  # seconds between two requests of a connection
_BACKLOG = 4096
_SEND_BUFFER = 128 << 10  # what the system holds for a client that does not read
_WATCH = 0.25  # seconds between two looks at the engine
_LAST_WORDS = 1.0  # seconds in which clients hear of the engine's end
_LINGER = 0.5  # seconds between an early refusal and the end of its connection
_ABORT = 3  # seconds for answers to leave after a stop


class _Signal:
    """An event that one task waits for. One of asyncio's has a queue, which takes 760 bytes while it is empty."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> None:
        if not self._is_set:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None


class _Pipeline(list[Any]):
    """Requests that came before an earlier one was answered: as few as these, a list is smaller than a queue."""

    __slots__ = ()

    def appendleft(self, item: Any) -> None:
        self.insert(0, item)


class Protocol(HttpToolsProtocol):
    """uvicorn's, with a deadline for a request to arrive, a limit for its head, and errors in our form."""

    __slots__ = (
        "_between",
        "_deadline",
        "_head",
        "_in_head",
        "_refused",
        "lost",
    )  # outside the dictionary, which is as long as it gets
    seconds = 10.0  # for a request to arrive

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._deadline: asyncio.TimerHandle | None = None
        self._head = 0  # bytes of an unfinished head
        self._in_head = True
        self._refused = False
        self._between = True  # no part of a next request has come
        self.lost: Callable[[], None] | None = None
        self.pipeline = _Pipeline()  # type: ignore[assignment]

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow._is_writable_event = _Signal(is_set=True)  # type: ignore[assignment]
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)
        if self.lost is not None:
            self.lost()

    def is_open(self) -> bool:
        return not self.transport.is_closing()

    def abort(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self.parser is None:
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head += len(data)
            if self._head > _HEAD_BYTES:
                self._refuse(431, "the headers are too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["connection"] = self
        self._in_head, self._head, self._between = True, 0, False
        self._arm()

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        super().on_headers_complete()
        self.cycle.message_event = _Signal()  # type: ignore[assignment]
        # uvicorn tells the last request of a connection alone that its client left, and others may come before it.
        self.scope["state"]["cycle"] = self.cycle

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._between = True
        self._disarm()

    def slim(self) -> None:
        """A stream has begun: the next request makes a new parser."""
        if self._between:
            self.parser = None  # type: ignore[assignment]
            self.headers.clear()

    def _arm(self) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(self.seconds, self._overdue)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _overdue(self) -> None:
        """Where a route waits for the body, the gate answers; otherwise nobody would."""
        if self._in_head or self.cycle is None or self.cycle.response_complete:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not a valid HTTP request")

    def _refuse(self, status: int, message: str) -> None:
        self._refused = True
        if self.pipeline or not (self.cycle is None or self.cycle.response_complete or self.cycle.more_body):
            self.cycle.keep_alive = False  # what was asked before is answered, and nothing is written in between
            return
        body = json.dumps(HttpError(status, message).content()).encode("ascii")
        head = f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(f"{head}connection: close\r\n\r\n".encode("ascii") + body)
        # What still comes is read and thrown away for a while: closed at once, the client would not see the answer.
        self.loop.call_later(_LINGER, self.transport.close)


class _Uvicorn(uvicorn.Server):
    """uvicorn's, without its signal handlers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(spec: ServingSpec) -> socket.socket:
    """The socket of a server; refused if the address is taken or is not of this machine."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(spec.host, spec.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)  # connections inherit it
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise UserError(
            f"cannot listen on {spec.host}, port {spec.port}: {error.strerror}",
            fix=f"stop the program that listens there, or choose another {option('port', '8001')}",
        ) from None
    return listener


def serve(
    spec: ServingSpec,
    listener: socket.socket,
    load: Callable[[], AnyEngine],
    ready: Callable[[AnyEngine], None],
    more: Sequence[Path] = (),
) -> int:
    """Serve until a signal or the engine's end. Returns an exit code: 128 and the signal's number, or 1.

    `load` runs in a thread of its own, while the server already answers that it is not ready. The process is meant to
    end afterwards: further signals are ignored, so that they do not change the exit code.
    """
    prepare()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a stream is an open file

    def settled(engine: AnyEngine) -> None:
        settle()
        ready(engine)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                return runner.run(Server(spec, listener, more).run(load, settled))
            finally:
                for number in _SIGNALS:
                    signal.signal(number, signal.SIG_IGN)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Server:
    """From the first connection to the last."""

    def __init__(self, spec: ServingSpec, listener: socket.socket, more: Sequence[Path] = ()) -> None:
        self._spec, self._listener = spec, listener
        self.service = Service(spec)
        protocol = type("BoundedProtocol", (Protocol,), {"__slots__": (), "seconds": spec.receive_seconds})
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                make_app(self.service, more),
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=_ABORT,
            )
        )
        self._signals: list[int] = []
        self._stop, self._abort = asyncio.Event(), asyncio.Event()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """As a signal does: the first time it finishes what runs, the second time it ends at once. On the loop."""
        self._signals.append(number)
        (self._abort if self._stop.is_set() else self._stop).set()

    async def run(self, load: Callable[[], AnyEngine], ready: Callable[[AnyEngine], None]) -> int:
        loop = asyncio.get_running_loop()
        self._watch_signals(loop)
        serving = asyncio.create_task(self._uvicorn.serve([self._listener]))
        engine: AnyEngine | None = None
        try:
            loading = _in_thread(load)
            await _first(loading, self._stop.wait())
            if self._stop.is_set():
                return 128 + self._signals[0]
            engine = loading.result()
            self._watch_signals(loop)  # again: Ray puts its own handlers there
            engine.start(loop)
            self.service.engine = engine
            ready(engine)
            return await self._watch(engine)
        finally:
            if engine is not None:
                await asyncio.to_thread(engine.stop)
            error = HttpError(503, "the server stopped before the text was finished", code="stopping")
            self.service.fail_all(error)
            self._uvicorn.should_exit = True
            await serving

    def _watch_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:  # (Handlers of the loop would end with it, before the process does.)
                signal.signal(number, lambda number, _: loop.call_soon_threadsafe(self.stop, number))

    async def _watch(self, engine: AnyEngine) -> int:
        """Until a signal, and then until all is finished or a second one."""
        service = self.service
        draining: asyncio.Task[None] | None = None
        ticked = time.monotonic()
        while engine.alive:
            await _first(self._abort.wait() if draining else self._stop.wait(), asyncio.sleep(_WATCH))
            if time.monotonic() - ticked >= 1.0:
                ticked = time.monotonic()
                service.tick(ticked)
            if self._stop.is_set() and draining is None:
                service.draining = True
                draining = asyncio.create_task(engine.drain(self._spec.drain_seconds))
            if draining is not None and (draining.done() or self._abort.is_set()):
                draining.cancel()
                return 128 + self._signals[0]
        service.failed = True
        service.fail_all(HttpError(500, "the engine failed", code="engine_failed"))
        await asyncio.sleep(_LAST_WORDS)
        return 1


async def _first(*waited: Any) -> None:
    """Until one of them is done; the others are given up, but for futures that somebody else made."""
    tasks = [asyncio.ensure_future(awaited) for awaited in waited]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task, awaited in zip(tasks, waited):
        if task is not awaited:
            task.cancel()


def _in_thread(load: Callable[[], AnyEngine]) -> "asyncio.Future[AnyEngine]":
    """The result of a function in a thread that does not keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[AnyEngine] = loop.create_future()

    def settle(result: AnyEngine | None, error: BaseException | None) -> None:
        if not future.done():
            future.set_exception(error) if error is not None else future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        try:
            result, error = load(), None
        except BaseException as raised:
            result, error = None, raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name="statewise-load", daemon=True).start()
    return future

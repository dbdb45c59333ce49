"""One request and the jobs that answer it: what came of them since the last look, and what ends them early."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from starlette.requests import Request

from statewise.serving.http.error import HttpError, of_refusal
from statewise.serving.job import Event, Finish, Job, Scored

if TYPE_CHECKING:
    from statewise.serving.http.service import Service

_CROWD = 128  # open requests above which streams are written to less often
_PAUSE = 1e-4  # seconds between two writes of a stream, for each request above that
_SCORED_BYTES = 100  # of one token with its probabilities, about


class Connection(Protocol):
    """What an exchange needs of the connection that it answers. A task that waits for its end would cost kilobytes."""

    lost: Callable[[], None] | None  # called once, when the client is gone

    def is_open(self) -> bool: ...
    def slim(self) -> None: ...
    def abort(self) -> None: ...


class Stream(Protocol):
    """An answer that is sent piece by piece."""

    def write(self) -> bool:
        """Send what came since the last call, at once; False if that is not possible."""


class Gone(Exception):
    """The client left: there is nobody to answer."""


class Choice:
    """What came of one job and was not written yet."""

    __slots__ = ("cached", "exchange", "finish", "ids", "index", "job", "prompt", "scored", "state", "texts", "tokens")

    def __init__(self, index: int) -> None:
        self.index = index
        self.texts: list[str] = []
        self.ids: list[int] = []
        self.scored: list[Scored] = []
        self.prompt: tuple[Scored, ...] = ()
        self.finish: Finish | None = None
        self.state: object = None
        self.cached = self.tokens = 0
        self.exchange: Exchange
        self.job: Job

    def receive(self, event: Event) -> None:
        """Called on the event loop, once a step at most."""
        exchange = self.exchange
        if event.text:
            self.texts.append(event.text)
        if event.ids:
            self.ids += event.ids
            self.tokens += len(event.ids)
        if event.scored:
            self.scored += event.scored
        if event.prompt:
            self.prompt = event.prompt
        self.cached = self.cached or event.cached
        if event.finish is not None:
            self.finish, self.state = event.finish, event.state
            exchange.unfinished -= 1
            if event.error is not None:
                exchange.failure = exchange.failure or of_refusal(event.error)
        exchange.came(self, len(event.text) + _SCORED_BYTES * (len(event.scored) + len(event.prompt)))

    def receive_token(self, text: str, id: int) -> None:
        """As `receive`, of a token with nothing else."""
        if text:
            self.texts.append(text)
        self.ids.append(id)
        self.tokens += 1
        self.exchange.came(self, len(text))

    def take(self) -> tuple[str, list[int], list[Scored]]:
        """What was not taken yet: the text, its tokens, and their probabilities."""
        taken = "".join(self.texts), self.ids, self.scored
        self.texts, self.ids, self.scored = [], [], []
        return taken


class Exchange:
    """The jobs of one request. One task waits; it is woken once for all that came."""

    __slots__ = (
        "_connection",
        "_limit",
        "_service",
        "_size",
        "_waiter",
        "choices",
        "failure",
        "gone",
        "idle_since",
        "pinged",
        "sending",
        "stream",
        "touched",
        "unfinished",
        "whole",
        "written",
    )

    def __init__(self, service: "Service", request: Request, choices: Sequence[Choice]) -> None:
        self._service, self._limit = service, service.spec.unread_bytes
        self._connection: Connection = request.scope["state"]["connection"]
        self.choices = choices
        self.touched: list[Choice] = []  # those that something came for, in order
        self.unfinished = len(choices)
        self.failure: HttpError | None = None
        self.gone = self.sending = self.pinged = False
        self.whole = False  # the answer is sent in one piece
        self.idle_since = time.monotonic()
        self.written = 0.0  # when something was sent last; 0: never
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self.stream: Stream | None = None  # once it has begun
        for choice in choices:
            choice.exchange = self
        service.submit([choice.job for choice in choices])
        service.exchanges.add(self)
        self._connection.lost = self.leave
        if not self._connection.is_open():
            self.leave()

    def begin_stream(self, stream: Stream) -> None:
        """Let go of what a request needs and a stream does not."""
        self._connection.slim()
        self.stream = stream

    def came(self, choice: Choice, size: int) -> None:
        if not self.touched or self.touched[-1] is not choice:
            self.touched.append(choice)
        self._size += size
        if self.sending and self._size > self._limit:
            self.drop()
        if not self.unfinished or self.failure:
            self._wake()
        elif self._is_due():
            if self.stream is None:
                self._wake()
            else:
                self._service.flush_soon(self)

    def _is_due(self) -> bool:
        """Whether text is written now. A write costs more than a token, so in a crowd several tokens share one."""
        if self.whole:
            return False
        crowd = len(self._service.exchanges) - _CROWD
        return crowd <= 0 or not self.written or time.monotonic() - self.written >= crowd * _PAUSE

    def flush(self, now: float) -> None:
        """Write what came. A task that is woken for it costs as much as the write, so it only ends a stream, and waits
        for a client that reads slowly.
        """
        if not self.touched or self.sending or not self.unfinished or self.gone or self.failure:
            return
        if self.stream is not None and self.stream.write():
            self.idle_since = self.written = now
        else:
            self._wake()

    def taken(self) -> list[Choice]:
        """The choices that something came for since the last call."""
        touched, self.touched, self._size = self.touched, [], 0
        return touched if len(touched) < 2 else list(dict.fromkeys(touched))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: HttpError) -> None:
        """End it with an error: the engine died, or the server stops."""
        self.failure = self.failure or error
        self._wake()

    def leave(self) -> None:
        """The client is gone."""
        self.gone = True
        self._wake()

    def drop(self) -> None:
        """The client does not read: end the connection."""
        self.leave()
        self._connection.abort()

    def tick(self, now: float) -> None:
        """Once a second: what was held back, a comment for a silent stream, an end for a client that does not read."""
        if now - self.idle_since >= self._service.spec.ping_seconds:
            if self.sending:
                self.drop()
            else:
                self.pinged, self.idle_since = True, now
                self._wake()
        elif self.touched and not self.whole:
            self._wake()  # what was held back in a crowd

    async def wait(self) -> None:
        """Until something came, or until there is nothing left to wait for."""
        if self.gone or self.failure or not self.unfinished or self.pinged or (self.touched and self._is_due()):
            return
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter
        self._waiter = None

    async def finish(self) -> None:
        """Wait for all of it, for an answer in one piece."""
        self.whole = True
        try:
            while self.unfinished and not (self.gone or self.failure):
                self.touched, self.pinged = [], False
                await self.wait()
        finally:
            self.close()
        if self.gone:
            raise Gone
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Give back what still runs."""
        self._connection.lost = None
        self._service.exchanges.discard(self)
        running = [choice.job for choice in self.choices if choice.finish is None]
        if running:
            self._service.cancel(running)

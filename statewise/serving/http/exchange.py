"""One request and the jobs that answer it: what came of them since the last look, and what ends them early."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from starlette.types import Receive

from statewise.serving.http.error import HttpError, of_refusal
from statewise.serving.job import Event, Finish, Job, Scored

if TYPE_CHECKING:
    from statewise.serving.http.service import Service

_SCORED_BYTES = 100  # of one token with its probabilities, about


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

    def take(self) -> tuple[str, list[int], list[Scored]]:
        """What was not taken yet: the text, its tokens, and their probabilities."""
        taken = "".join(self.texts), self.ids, self.scored
        self.texts, self.ids, self.scored = [], [], []
        return taken


class Exchange:
    """The jobs of one request. One task waits; it is woken once for all that came."""

    __slots__ = (
        "_limit",
        "_service",
        "_size",
        "_waiter",
        "abort",
        "choices",
        "failure",
        "gone",
        "idle_since",
        "pinged",
        "sending",
        "touched",
        "unfinished",
    )

    def __init__(self, service: "Service", choices: Sequence[Choice], abort: Callable[[], None] | None = None) -> None:
        self._service, self._limit, self.abort = service, service.spec.unread_bytes, abort
        self.choices = choices
        self.touched: list[Choice] = []  # those that something came for, in order
        self.unfinished = len(choices)
        self.failure: HttpError | None = None
        self.gone = self.sending = self.pinged = False
        self.idle_since = asyncio.get_running_loop().time()
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        for choice in choices:
            choice.exchange = self
        service.submit([choice.job for choice in choices])
        service.exchanges.add(self)

    def came(self, choice: Choice, size: int) -> None:
        if not self.touched or self.touched[-1] is not choice:
            self.touched.append(choice)
        self._size += size
        if self.sending and self._size > self._limit:
            self.drop()
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
        if self.abort is not None:
            self.abort()

    def tick(self, now: float) -> None:
        """Once a second: a comment for a silent stream, an end for a client that stopped reading."""
        if now - self.idle_since >= self._service.spec.ping_seconds:
            if self.sending:
                self.drop()
            else:
                self.pinged, self.idle_since = True, now
                self._wake()

    async def wait(self) -> None:
        """Until something came, or until there is nothing left to wait for."""
        if self.touched or self.gone or self.failure or not self.unfinished or self.pinged:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter
        self._waiter = None

    async def watch(self, receive: Receive) -> None:
        """Notice that the client leaves. The body was read before, so nothing else can come."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.leave()

    async def finish(self, receive: Receive) -> None:
        """Wait for all of it, for an answer in one piece."""
        watcher = asyncio.ensure_future(self.watch(receive))
        try:
            while self.unfinished and not (self.gone or self.failure):
                self.touched, self.pinged = [], False
                await self.wait()
        finally:
            watcher.cancel()
            self.close()
        if self.gone:
            raise Gone
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Give back what still runs."""
        self._service.exchanges.discard(self)
        running = [choice.job for choice in self.choices if choice.finish is None]
        if running:
            self._service.cancel(running)

"""Server-sent events: one write for all that came since the last, and a comment where nothing comes for long."""

import time
from typing import Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from statewise.serving.http.error import HttpError
from statewise.serving.http.exchange import Exchange, Gone

_KEPT = ("type", "method", "state")  # of a request, while its answer is streamed
_PING = b": ping\n\n"
_HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no"))


class Writer(Protocol):
    """The events of one kind of stream, as bytes."""

    def news(self) -> bytes:
        """What came since the last call; may be empty."""

    def end(self) -> bytes:
        """What follows the last text."""

    def failure(self, error: HttpError) -> bytes: ...


class EventStream(Response):
    """Sends the events of an exchange. Nothing is sent before the first: an early refusal has its own status."""

    media_type = "text/event-stream"

    def __init__(self, exchange: Exchange, writer: Writer) -> None:
        self._exchange, self._writer = exchange, writer
        self.status_code, self.background, self.body = 200, None, b""
        self.raw_headers = [*_HEADERS]

    def write(self) -> bool:
        """What came, as a chunk, without a task. False: the client reads slowly, so somebody must wait for it."""
        cycle = self._cycle
        if cycle.disconnected or cycle.flow.write_paused or not cycle.chunked_encoding:
            return False
        if body := self._writer.news():
            cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange, writer = self._exchange, self._writer
        self._cycle, started = scope["state"]["cycle"], False
        try:
            while True:
                await exchange.wait()
                if exchange.gone:
                    raise Gone
                if exchange.failure is not None:
                    if not started:
                        raise exchange.failure
                    body = writer.failure(exchange.failure)
                else:
                    body = writer.news()
                    if exchange.pinged:
                        body, exchange.pinged = body or _PING, False
                last = exchange.failure is not None or (not exchange.unfinished and not exchange.touched)
                if last and exchange.failure is None:
                    body += writer.end()
                if body or last:
                    exchange.sending, exchange.idle_since = True, time.monotonic()
                    if not started:
                        started = True
                        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                        del self.raw_headers
                        exchange.begin_stream(self)
                        scope["state"]["headers"] = ()
                        kept = {name: scope[name] for name in _KEPT}
                        scope.clear()
                        scope.update(kept)
                        del kept
                    await send({"type": "http.response.body", "body": body, "more_body": not last})
                    del body
                    exchange.sending, exchange.idle_since = False, time.monotonic()
                    exchange.written = exchange.idle_since
                if last:
                    return
        finally:
            exchange.close()

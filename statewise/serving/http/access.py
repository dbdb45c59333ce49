"""Who may ask, and what reaches a route: host, origin, key, size and time of a request are checked before it."""

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
from contextlib import nullcontext
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from statewise.serving.http.error import HttpError
from statewise.serving.http.exchange import Gone
from statewise.specs import LOOPBACK, ServingSpec

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_OPEN = "/health"  # the one path that needs no key
_MOST_HOSTS = 64  # accepted Host headers that are remembered
_ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_log = logging.getLogger("statewise.serving")


class Gate:
    """The outermost application: refuses, reads the body, and turns every error into an object."""

    def __init__(self, app: ASGIApp, spec: ServingSpec) -> None:
        self._app, self._spec = app, spec
        keys = [key.get_secret_value().encode() for key in spec.keys]
        # A state's owner is written into files: a digest, never the key.
        self._owners = {key: hashlib.sha256(b"statewise owner " + key).hexdigest()[:32] for key in keys}
        self._hosts = {host.lower() for host in (*LOOPBACK, spec.host, *spec.hosts)}
        self._any_host = not (spec.is_loopback or spec.hosts)
        self._accepted: set[bytes] = set()  # headers that were looked at

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = scope["headers"]
        given = _only(headers, b"x-request-id")
        request_id = given if given and _REQUEST_ID.fullmatch(given) else secrets.token_hex(12).encode()
        # Each response takes these in; to put them in on the way out would cost every event of a stream.
        scope["state"]["headers"] = [(b"x-request-id", request_id), *_ALWAYS]
        try:
            scope["state"]["owner"] = self._admit(scope)
            await self._app(scope, _Replay(await self._body(scope, receive), receive), send)
        except Gone:
            scope["state"]["cycle"].disconnected = True  # or uvicorn would miss the response
        except HttpError as error:
            await answer(error.response(), scope, receive, send)
        except Exception as raised:
            _log.exception("request %s failed", request_id.decode())
            inside = HttpError(500, "an error inside the server; its log has the details")
            try:
                await answer(inside.response(), scope, receive, send)
            except RuntimeError:  # a response had begun: a closed connection is what a client notices
                raise raised from None

    def _admit(self, scope: Scope) -> str:
        """The owner of what the request will make; refused if it may not be asked at all."""
        headers = scope["headers"]
        sent = _only(headers, b"host") or b""
        host = sent.decode("latin-1")
        if sent not in self._accepted:
            if not self._knows(host):
                said = "the Host header names another server; allow it with the setting hosts"
                raise HttpError(400, said, code="host")
            if len(self._accepted) < _MOST_HOSTS:
                self._accepted.add(sent)
        origin = _only(headers, b"origin")
        if origin is not None and urlsplit(origin.decode("latin-1")).netloc.lower() != host.lower():
            raise HttpError(403, "requests of other web pages are refused", code="origin")
        if not self._owners:
            return ""
        if scope["path"] == _OPEN:
            return ""
        words = (_only(headers, b"authorization") or b"").split(b" ")
        key = words[1] if len(words) == 2 and words[0].lower() == b"bearer" else b""
        owner = ""
        for known, named in self._owners.items():  # every key is compared, in constant time
            if hmac.compare_digest(known, key):
                owner = named
        if not owner:
            raise HttpError(
                401,
                "send the key of this server: Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        return owner

    def _knows(self, host: str) -> bool:
        """Whether the Host header is one of ours: a web page elsewhere could point its own name at this machine."""
        name = (urlsplit(f"//{host}").hostname or "") if host and "/" not in host and "@" not in host else ""
        if not name or self._any_host:
            return bool(name)
        try:
            return ipaddress.ip_address(name).is_loopback or name in self._hosts
        except ValueError:
            return name in self._hosts

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            return b""
        headers = scope["headers"]
        limit = self._spec.state_upload if scope["method"] == "PUT" else self._spec.body_bytes
        if _only(headers, b"content-encoding") not in (None, b"identity"):
            raise HttpError(415, "a compressed body is not accepted", code="content_encoding")
        length = _only(headers, b"content-length")
        if length is not None and length.isdigit() and int(length) > limit:
            raise _too_large(limit)
        parts, size = [], 0
        more = scope["state"]["cycle"].more_body  # otherwise all of it came with the head
        try:
            async with asyncio.timeout(self._spec.receive_seconds) if more else nullcontext():
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    part = message.get("body", b"")
                    size += len(part)
                    if size > limit:
                        raise _too_large(limit)
                    parts.append(part)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            seconds = self._spec.receive_seconds
            raise HttpError(
                408, f"the body did not arrive within {seconds:g} seconds", headers={"connection": "close"}
            ) from None


async def answer(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a response with the headers that every one has."""
    response.raw_headers.extend(scope["state"]["headers"])
    await response(scope, receive, send)


class _Replay:
    """Gives the body that was read, then what the connection gives."""

    __slots__ = ("_body", "_receive")

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()


def _too_large(limit: int) -> HttpError:
    return HttpError(413, f"the body is larger than {limit:,} bytes", code="body_too_large")


def _only(headers: list[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The value of a header; several are as bad as a wrong one."""
    values = [value for key, value in headers if key == name]
    return None if not values else values[0] if len(values) == 1 else b"\0"

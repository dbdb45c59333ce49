"""`/v1/states`: what a model remembers of a text, kept under an id: read, list, fork, move, delete."""

import asyncio
import re
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from statewise.serving.http.completion import new_id, token_prompts
from statewise.serving.http.error import HttpError, as_json, invalid
from statewise.serving.http.exchange import Choice, Exchange
from statewise.serving.http.request import ForkRequest, StateRequest, checked_id, parse
from statewise.serving.http.service import Service, owner_of
from statewise.serving.job import Job, Refused
from statewise.serving.store import StateStore

_PART = 1000  # states that one answer lists
_BINARY = "application/octet-stream"
T = TypeVar("T")


async def asked_store(service: Service, ask: Callable[[], T]) -> T:
    """What the store says. It may wait for the disk, so another thread asks it and streams go on."""
    try:
        return await asyncio.to_thread(ask)
    except Refused as refused:
        service.refuse(refused)


async def read_text(service: Service, request: Request) -> Response:
    """Read a prompt and keep the state after it."""
    asked = await parse(StateRequest, request)
    served = service.served(asked.model, task="language_model")
    prompts = await token_prompts(service, served, asked.prompt)
    if len(prompts) != 1:
        raise invalid(f"{len(prompts)} prompts; a state is of one text", param="prompt")
    service.check_length(served, prompts[0][0], 0)
    choice = Choice(0)
    choice.job = Job(
        model=served.name,
        prompt=prompts[0][0],
        receive=choice.receive,
        max_tokens=0,
        start=asked.state,
        save=asked.id or new_id("state"),
        owner=owner_of(request),
        deadline=service.deadline(),
    )
    exchange = Exchange(service, request, [choice])
    await exchange.finish()
    return as_json(choice.state, status=201)


async def list_all(service: Service, request: Request) -> Response:
    """A part of them, in the order of their last use; `after` the last of it the next part begins."""
    store, query = service.ready_engine().store, request.query_params
    limit = query.get("limit", str(_PART))
    if not re.fullmatch("[1-9][0-9]{0,3}", limit) or int(limit) > _PART:
        raise invalid(f"limit {limit[:32]!r}; expected 1 to {_PART}", param="limit")
    after = checked_id(query["after"]) if "after" in query else None
    entries = await asked_store(service, lambda: store.list(owner_of(request), limit=int(limit) + 1, after=after))
    part = entries[: int(limit)]
    return as_json({"object": "list", "data": part, "has_more": len(entries) > len(part)})


async def describe(service: Service, request: Request) -> Response:
    store, id = _named(service, request)
    return as_json(await asked_store(service, lambda: store.describe(id, owner_of(request))))


async def fork(service: Service, request: Request) -> Response:
    asked = await parse(ForkRequest, request) if await request.body() else ForkRequest()
    store, id = _named(service, request)
    return as_json(await asked_store(service, lambda: store.fork(id, owner_of(request), asked.id)), status=201)


async def delete(service: Service, request: Request) -> Response:
    store, id = _named(service, request)
    await asked_store(service, lambda: store.delete(id, owner_of(request)))
    return as_json({"id": id, "object": "state.deleted", "deleted": True})


async def download(service: Service, request: Request) -> Response:
    """The state as a safetensors file: `statewise generate --state` continues it, too."""
    store, id = _named(service, request)
    data = await asked_store(service, lambda: store.get(id, owner_of(request)).content)
    return Response(
        data, media_type=_BINARY, headers={"content-disposition": f'attachment; filename="{id}.safetensors"'}
    )


async def upload(service: Service, request: Request) -> Response:
    """A file that `download` or `statewise generate --save-state` wrote. Another model's state is refused."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _BINARY:
        raise HttpError(415, f"a state is sent as content-type {_BINARY}")
    store, id = _named(service, request)
    served = service.served(request.query_params.get("model"), task="language_model")
    data = await request.body()
    if not data:
        raise invalid("the body is empty; expected a safetensors file")
    made = await asked_store(service, lambda: store.import_(served.name, data, owner_of(request), id))
    return as_json(made, status=201)


def _named(service: Service, request: Request) -> tuple[StateStore, str]:
    return service.ready_engine().store, checked_id(request.path_params["id"])

"""`/v1/responses`: each answer is a state, so a later request continues it, and two that continue one are a fork."""

import json
import time
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from statewise.serving.http.completion import first_seed, new_id, sampling_of, stops_of
from statewise.serving.http.error import HttpError, as_json, invalid, of_json
from statewise.serving.http.exchange import Choice, Exchange
from statewise.serving.http.request import ResponseRequest, checked_id, parse
from statewise.serving.http.service import Service, owner_of
from statewise.serving.http.sse import EventStream
from statewise.serving.http.states import asked_store
from statewise.serving.job import Job

_REASON = {"length": "max_output_tokens"}


class Reply:
    """One response, from its beginning to its end."""

    def __init__(self, asked: ResponseRequest, served: Any, prompt: list[int]) -> None:
        self._asked, self._served, self._prompt = asked, served, prompt
        self.id, self.item = new_id("resp"), new_id("msg")
        self._created = int(time.time())

    def choice(self, service: Service, owner: str) -> Choice:
        asked, choice = self._asked, Choice(0)
        choice.job = Job(
            model=self._served.name,
            prompt=self._prompt,
            receive=choice.receive,
            receive_token=choice.receive_token,
            sampling=sampling_of(asked, seed=first_seed(asked), vocab=self._served.vocab),
            max_tokens=asked.max_output_tokens,
            min_tokens=min(asked.min_tokens, asked.max_output_tokens),
            stop=stops_of(asked),
            stop_ids=frozenset(asked.stop_token_ids),
            ignore_end=asked.ignore_eos,
            start=asked.previous_response_id,
            save=self.id if asked.store else None,
            owner=owner,
            deadline=service.deadline(),
        )
        return choice

    def part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def message(self, status: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"type": "message", "id": self.item, "status": status, "role": "assistant", "content": list(parts)}

    def object(self, choice: Choice | None = None, text: str = "", *, error: HttpError | None = None) -> dict[str, Any]:
        """The response: in progress without a choice, finished with one."""
        asked = self._asked
        status = "failed" if error else "in_progress" if choice is None else "completed"
        reason = _REASON.get(str(choice.finish)) if choice is not None else None
        written = 0 if choice is None else choice.tokens
        usage = {
            "input_tokens": len(self._prompt),
            "input_tokens_details": {"cached_tokens": 0 if choice is None else choice.cached},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": len(self._prompt) + written,
        }
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": "incomplete" if reason and not error else status,
            "error": None if error is None else {"code": error.code or "server_error", "message": error.message},
            "incomplete_details": None if reason is None else {"reason": reason},
            "instructions": None,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata,
            "model": self._served.name,
            "output": [] if choice is None else [self.message("completed", self.part(text))],
            "parallel_tool_calls": False,
            "previous_response_id": asked.previous_response_id,
            "store": asked.store,
            "temperature": asked.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": asked.top_p,
            "truncation": "disabled",
            "usage": None if choice is None else usage,
        }


class Events:
    """A reply as the events of a stream."""

    def __init__(self, service: Service, owner: str, reply: Reply, exchange: Exchange, *, store: bool) -> None:
        self._service, self._owner, self._reply, self._exchange, self._store = service, owner, reply, exchange, store
        self._number = 0
        self._texts: list[str] = []
        self._began = False
        where = f'"item_id": "{reply.item}", "output_index": 0, "content_index": 0, "logprobs": []'
        self._delta = f'event: response.output_text.delta\ndata: {{"type": "response.output_text.delta", {where}'

    def _event(self, kind: str, **content: Any) -> str:
        data = json.dumps({"type": kind, "sequence_number": self._number, **content}, allow_nan=False)
        self._number += 1
        return f"event: {kind}\ndata: {data}\n\n"

    def _beginning(self) -> str:
        self._began = True
        reply = self._reply
        return (
            self._event("response.created", response=reply.object())
            + self._event("response.in_progress", response=reply.object())
            + self._event("response.output_item.added", output_index=0, item=reply.message("in_progress"))
            + self._event("response.content_part.added", **self._place(), part=reply.part(""))
        )

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._reply.item, "output_index": 0, "content_index": 0}

    def news(self) -> bytes:
        made = "" if self._began else self._beginning()
        for choice in self._exchange.taken():
            text, _, _ = choice.take()
            if text:
                self._texts.append(text)
                made += f'{self._delta}, "sequence_number": {self._number}, "delta": {quoted(text)}}}\n\n'
                self._number += 1
        return made.encode("ascii")

    def end(self) -> bytes:
        reply, text = self._reply, "".join(self._texts)
        done = reply.object(self._exchange.choices[0], text)
        if self._store:
            self._service.responses.put(reply.id, self._owner, bytes(as_json(done).body))
        made = (
            self._event("response.output_text.done", **self._place(), text=text, logprobs=[])
            + self._event("response.content_part.done", **self._place(), part=reply.part(text))
            + self._event("response.output_item.done", output_index=0, item=done["output"][0])
            + self._event(f"response.{done['status']}", response=done)
        )
        return made.encode("ascii")

    def failure(self, error: HttpError) -> bytes:
        failed = self._reply.object(error=error)
        return self._event("response.failed", response=failed).encode("ascii")


async def respond(service: Service, request: Request) -> Response:
    service.check_room()
    asked = await parse(ResponseRequest, request)
    if asked.instructions:
        raise invalid(
            "instructions need a chat format, and plain language models have none; put the text into input",
            param="instructions",
            code="unsupported_parameter",
        )
    served = service.served(asked.model, task="language_model")
    prompt = await service.encode(served, _text_of(asked))
    service.check_length(served, prompt, asked.max_output_tokens)
    if asked.previous_response_id and service.existing(asked.previous_response_id, owner_of(request)) is None:
        raise HttpError(
            404,
            f"there is no response {asked.previous_response_id!r} to continue: it was not stored, or was deleted",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    reply, owner = Reply(asked, served, prompt), owner_of(request)
    exchange = Exchange(service, request, [reply.choice(service, owner)])
    if asked.stream:
        return EventStream(exchange, Events(service, owner, reply, exchange, store=asked.store))
    await exchange.finish()
    choice = exchange.choices[0]
    done = reply.object(choice, choice.take()[0])
    answer = as_json(done)
    if asked.store:
        service.responses.put(reply.id, owner, bytes(answer.body))
    return answer


def _text_of(asked: ResponseRequest) -> str:
    """The input as plain text: nothing is put between messages, because there is no chat format."""
    if isinstance(asked.input, str):
        return asked.input
    contents = [message.content for message in asked.input]
    return "".join(
        content if isinstance(content, str) else "".join(part.text for part in content) for content in contents
    )


def _kept(service: Service, request: Request) -> tuple[str, bytes]:
    """An id and its answer; the state itself is in the store."""
    id = checked_id(request.path_params["id"])
    answer = service.responses.get(id, owner_of(request))
    if answer is None:
        raise HttpError(404, f"there is no response {id!r}", param="id", code="response_not_found")
    return id, answer


async def describe(service: Service, request: Request) -> Response:
    return of_json(_kept(service, request)[1])


async def delete(service: Service, request: Request) -> Response:
    """The object, and the state that it stands for."""
    id, _ = _kept(service, request)
    service.responses.drop(id)
    store = service.ready_engine().store
    try:
        await asked_store(service, lambda: store.delete(id, owner_of(request)))
    except HttpError as error:  # the store may have given it up already
        if error.status != 404:
            raise
    return as_json({"id": id, "object": "response", "deleted": True})

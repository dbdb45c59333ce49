"""`/v1/chat/completions`: messages in the chat format of a run, as completions of the text that it makes of them.

With a session or a saved state, `messages` are the new ones: the state has read the others, and its own answers.
"""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from statewise.serving.http.completion import GOES_ON, Completion, Form, answered, stops_of, with_session
from statewise.serving.http.error import HttpError, invalid
from statewise.serving.http.logprobs import Pieces
from statewise.serving.http.request import ChatMessage, ChatRequest, CompletionRequest, parse
from statewise.serving.http.service import Service, owner_of
from statewise.serving.job import Refused

_MAX_TOKENS = 256  # where a request does not say
_CHAT = Form(
    "chatcmpl",
    "chat.completion",
    "chat.completion.chunk",
    lambda text: {"message": {"role": "assistant", "content": text, "refusal": None}},
    '"delta":{"content":',
    "}",
    f"}}{GOES_ON}",
    '"delta":{"role":"assistant","content":""',
    Pieces.report_chat,
)


async def complete(service: Service, request: Request) -> Response:
    service.check_room()
    asked = with_session(await parse(ChatRequest, request), request)
    served = service.served(asked.model, task="language_model")
    owner = owner_of(request)
    started = asked.state or (asked.session_id and service.existing(asked.session_id, owner))
    format, messages = chat_of(served), said(asked.messages)
    try:
        ids, read = format.go_on(messages) if started else format.begin(messages)
    except Refused as refused:
        service.refuse(refused)
    stops = stops_of(asked)
    plain = asked.model_dump(exclude={"messages", "response_format", "tools", "top_logprobs", "max_completion_tokens"})
    plain |= {
        "prompt": ids,
        "max_tokens": _first_given(
            asked.max_completion_tokens, asked.max_tokens, min(_MAX_TOKENS, service.spec.max_tokens)
        ),
        "logprobs": asked.top_logprobs if asked.logprobs else None,
        "stop": [*stops, format.stop] if format.stop else list(stops),
        "stop_token_ids": [*asked.stop_token_ids, *([] if format.stop_id is None else [format.stop_id])],
        "stream_options": asked.stream_options,
    }
    text = CompletionRequest.model_construct(asked.model_fields_set, **plain)
    completion = Completion(service, served, text, [(ids, "")], _CHAT)
    choices = completion.choices(service, text, owner, whole=True, read=read)
    return await answered(service, request, text, completion, choices)


def chat_of(served: Any) -> Any:
    """The chat format of a run; refused if it has none, or one that cannot be used."""
    if served.chat is not None:
        return served.chat
    if served.chat_problem:
        raise invalid(served.chat_problem, param="model", code="chat_template_not_supported")
    raise HttpError(
        400,
        f"model {served.name!r} has no chat format: its folder has no chat_template.jinja; "
        "ask /v1/completions with a prompt, or /v1/responses with an input",
        param="model",
        code="chat_not_supported",
    )


def said(messages: Sequence[ChatMessage]) -> list[tuple[str, str]]:
    """Roles and contents; a developer speaks as the system does."""
    return [
        (
            "system" if message.role == "developer" else message.role,
            message.content if isinstance(message.content, str) else "".join(part.text for part in message.content),
        )
        for message in messages
    ]


def _first_given(*values: int | None) -> int:
    return next(value for value in values if value is not None)

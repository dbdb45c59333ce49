"""The routes, and their description in OpenAPI's form, made of the same table."""

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from statewise import __version__
from statewise.serving.http import chat, completion, info, responses, states
from statewise.serving.http.access import Gate, answer
from statewise.serving.http.error import HttpError, as_json
from statewise.serving.http.request import (
    STATE_ID,
    Body,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    ForkRequest,
    PredictRequest,
    ResponseRequest,
    StateRequest,
    TokenizeRequest,
)
from statewise.serving.http.service import Service

Answer = Callable[[Service, Request], Awaitable[Response]]


class Path(NamedTuple):
    method: str
    path: str
    answer: Answer
    says: str
    body: type[Body] | None = None
    status: int = 200


_TASKS = {"classify": "classification", "tag": "tagging", "translate": "translation", "forecast": "forecasting"}
PATHS = (
    Path("POST", "/v1/completions", completion.complete, "Continue a prompt", CompletionRequest),
    Path("POST", "/v1/responses", responses.respond, "Continue a prompt or a response", ResponseRequest),
    Path("GET", "/v1/responses/{id}", responses.describe, "A stored response"),
    Path("DELETE", "/v1/responses/{id}", responses.delete, "Delete a stored response and its state"),
    Path("POST", "/v1/chat/completions", chat.complete, "Answer messages, with a run's chat format", ChatRequest),
    Path("GET", "/v1/models", info.models, "The served models"),
    Path("GET", "/v1/models/{id}", info.model, "One served model"),
    Path("POST", "/v1/states", states.read_text, "Read a text and keep the state after it", StateRequest, 201),
    Path("GET", "/v1/states", states.list_all, "The saved states"),
    Path("GET", "/v1/states/{id}", states.describe, "One saved state"),
    Path("DELETE", "/v1/states/{id}", states.delete, "Delete a saved state"),
    Path("POST", "/v1/states/{id}/fork", states.fork, "Copy a saved state to another id", ForkRequest, 201),
    Path("GET", "/v1/states/{id}/content", states.download, "A saved state as a safetensors file"),
    Path("PUT", "/v1/states/{id}/content", states.upload, "Save a safetensors file as a state", None, 201),
    Path("POST", "/v1/predict", info.predict, "Predict rows, with a run of any task but language", PredictRequest),
    *(
        Path("POST", f"/v1/{verb}", partial(info.predict, task=task), f"Predict rows: {task}", PredictRequest)
        for verb, task in _TASKS.items()
    ),
    Path("POST", "/tokenize", info.tokenize, "A text as token ids", TokenizeRequest),
    Path("POST", "/detokenize", info.detokenize, "Token ids as a text", DetokenizeRequest),
    Path("GET", "/tokenizer_info", info.tokenizer_info, "The special tokens"),
    Path("GET", "/health", info.health, "Whether the process works; needs no key"),
    Path("GET", "/ready", info.ready, "Whether requests are answered now"),
    Path("GET", "/metrics", info.metrics, "Counters and histograms for Prometheus"),
    Path("GET", "/version", info.version, "The version of statewise"),
)


class _Routes:
    """Calls the function of a path and a method: one frame for the whole of a stream, where a router takes four."""

    def __init__(self, service: Service, paths: Sequence[Path]) -> None:
        self._service = service
        self._fixed: dict[str, dict[str, Answer]] = {}
        self._patterns: dict[re.Pattern[str], dict[str, Answer]] = {}
        for path in paths:
            if "{id}" in path.path:
                pattern = re.compile(path.path.replace("{id}", "(?P<id>[^/]+)"))
                self._patterns.setdefault(pattern, {})[path.method] = path.answer
            else:
                self._fixed.setdefault(path.path, {})[path.method] = path.answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._find(scope)(self._service, Request(scope, receive))
        await answer(response, scope, receive, send)

    def _find(self, scope: Scope) -> Answer:
        answers = self._fixed.get(scope["path"])
        if answers is None:
            for pattern, several in self._patterns.items():
                if match := pattern.fullmatch(scope["path"]):
                    scope["path_params"], answers = match.groupdict(), several
                    break
            else:
                raise HttpError(404, "there is no such path; the list is at /openapi.json", code="path_not_found")
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if method not in answers:
            allowed = sorted({*answers, *(["HEAD"] if "GET" in answers else ())})
            raise HttpError(405, f"this path takes {', '.join(allowed)}", headers={"allow": ", ".join(allowed)})
        return answers[method]


def make_app(service: Service, more: Sequence[Path] = ()) -> ASGIApp:
    """The application of a server, with `more` paths of its own: `service.engine` may come later."""

    known: dict[bool, Any] = {}  # by whether the models are

    async def describe(service: Service, request: Request) -> Response:
        loaded = service.engine is not None
        if loaded not in known:
            known[loaded] = openapi(service)
        return as_json(known[loaded])

    described = Path("GET", "/openapi.json", describe, "This description")
    return Gate(_Routes(service, [*PATHS, described, *more]), service.spec)


_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def openapi(service: Service) -> dict[str, Any]:
    """The description of all paths, with the limits of this server."""
    kinds = sorted({path.body for path in PATHS if path.body is not None}, key=lambda kind: kind.__name__)
    names, schema = models_json_schema(
        [(kind, "validation") for kind in kinds], ref_template="#/components/schemas/{model}"
    )
    parts = schema["$defs"]
    for part in parts.values():
        _tighten(part, service)
    error = {
        "description": "Refused",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    made: dict[str, Any] = {}
    for path in PATHS:
        operation: dict[str, Any] = {
            "summary": path.says,
            "operationId": f"{path.method} {path.path}",
            "responses": {str(path.status): {"description": "Done"}, "default": error},
        }
        if "{id}" in path.path:
            named = {"type": "string", "pattern": STATE_ID}
            operation["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": named}]
        if path.body is not None:
            reference = names[(path.body, "validation")]
            content = {"application/json": {"schema": reference}}
            operation["requestBody"] = {"required": path.body is not ForkRequest, "content": content}
        elif path.method == "PUT":
            binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
            operation["requestBody"] = {"required": True, "content": binary}
        made.setdefault(path.path, {})[path.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "statewise", "version": __version__},
        "paths": made,
        "components": {"schemas": {**parts, "Error": _ERROR}},
    }


def _tighten(part: dict[str, Any], service: Service) -> None:
    """What is known only here: the limits of this server, and the names of its models. Null is left out."""
    spec, models = service.spec, {} if service.engine is None else service.engine.models
    limits = {"max_tokens": spec.max_tokens, "max_output_tokens": spec.max_tokens, "n": spec.max_choices}
    limits |= {"max_completion_tokens": spec.max_tokens, "best_of": spec.max_choices, "top_logprobs": spec.max_logprobs}
    if "messages" not in part.get("properties", {}):  # in a chat, logprobs is true or false
        limits["logprobs"] = spec.max_logprobs
    fields = part.get("properties", {})
    for name, field in fields.items():
        if name in limits:
            (field if "maximum" in field else field["anyOf"][0])["maximum"] = limits[name]
        if name == "model" and models:
            fields[name] = {"enum": [*models, None]}
        elif name not in part.get("required", ()):
            either = field.pop("anyOf", None) or [fields[name]]
            if {"type": "null"} not in either:
                either = [*either, {"type": "null"}]
            fields[name] = {**(field if either[0] is not field else {}), "anyOf": either}

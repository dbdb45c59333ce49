"""The routes, and their description in OpenAPI's form, made of the same table."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from statewise import __version__
from statewise.serving.http import completion, info, responses, states
from statewise.serving.http.access import Gate
from statewise.serving.http.error import as_json
from statewise.serving.http.request import (
    Body,
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
    Path("POST", "/v1/chat/completions", info.chat, "Refused: no run has a chat format", Body),
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


class _Endpoint:
    """A route's function as an application: one frame for the whole of a stream."""

    def __init__(self, service: Service, answer: Answer) -> None:
        self._service, self._answer = service, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._answer(self._service, request)
        del request
        await response(scope, receive, send)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise HTTPException(404)


def make_app(service: Service) -> ASGIApp:
    """The application of a server: `service.engine` may come later."""
    schema = as_json(openapi(service))

    async def describe(service: Service, request: Request) -> Response:
        return schema

    paths = [*PATHS, Path("GET", "/openapi.json", describe, "This description")]
    by_path: dict[str, dict[str, Path]] = {}
    for path in paths:
        by_path.setdefault(path.path, {})[path.method] = path
    routes = [
        Route(path.path, _Endpoint(service, path.answer), methods=[path.method])
        for methods in by_path.values()
        for path in methods.values()
    ]
    router = Router(routes, redirect_slashes=False, default=_not_found)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = router  # so that a wrong method is raised, not answered as text
        await router(scope, receive, send)

    return Gate(app, service.spec)


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
    spec = service.spec
    limits = {"max_tokens": spec.max_tokens, "max_output_tokens": spec.max_tokens, "n": spec.max_choices}
    limits |= {"best_of": spec.max_choices, "logprobs": spec.max_logprobs}
    for part in parts.values():
        for name, field in part.get("properties", {}).items():
            if name in limits:
                (field if "maximum" in field else field["anyOf"][0])["maximum"] = limits[name]
            if name not in part.get("required", ()) and "anyOf" not in field:
                part["properties"][name] = {"anyOf": [field, {"type": "null"}]}
            elif "anyOf" in field and {"type": "null"} not in field["anyOf"]:
                field["anyOf"].append({"type": "null"})
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
            operation["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
        if path.body is not None:
            reference = names[(path.body, "validation")]
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
        elif path.method == "PUT":
            content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
            operation["requestBody"] = {"required": True, "content": content}
        made.setdefault(path.path, {})[path.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "statewise", "version": __version__},
        "paths": made,
        "components": {"schemas": {**parts, "Error": _ERROR}},
    }

"""What is served and how it is: models, tokens, predictions of other tasks, health, metrics."""

import os
import resource
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from statewise import __version__
from statewise.serving.http.error import HttpError, as_json, invalid
from statewise.serving.http.request import DetokenizeRequest, PredictRequest, TokenizeRequest, parse
from statewise.serving.http.service import Service, owner_of
from statewise.serving.job import Refused

_GIGABYTE = 10**9
_READ = 1024  # tokens after which the size of a growing state is reported
_MOST_ROWS = 16384  # or values of a series


def _model(served: Any) -> dict[str, Any]:
    made = {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "statewise",
        "family": served.family,
        "task": served.task,
        "parameters": served.parameters,
        "fingerprint": served.fingerprint,
    }
    if served.task == "language_model":
        now, later = served.state_bytes(1), served.state_bytes(_READ)
        made |= {
            "vocab": served.vocab,
            "max_context": served.max_context,
            "chat": served.chat is not None,
            "state_bytes_per_sequence": later,
            "state_grows": later > now,
            "state_tokens": _READ,
            "sequences_per_gigabyte": _GIGABYTE // max(1, later),
        }
    return made


async def models(service: Service, request: Request) -> Response:
    served = service.ready_engine().models
    return as_json({"object": "list", "data": [_model(model) for model in served.values()]})


async def model(service: Service, request: Request) -> Response:
    return as_json(_model(service.served(request.path_params["id"])))


async def tokenize(service: Service, request: Request) -> Response:
    asked = await parse(TokenizeRequest, request)
    served = service.served(asked.model, task="language_model")
    edges = {served.tokenizer.end_token: served.tokenizer.end_id, served.run.begin_token: served.run.begin_id}
    if asked.prompt in edges:  # alone, it asks for the id; inside a text it is only text
        tokens = [int(edges[asked.prompt])]
    else:
        tokens = await service.encode(served, asked.prompt)
    made = {"tokens": tokens, "count": len(tokens), "max_model_len": served.max_context}
    if asked.return_token_strs:
        made["token_strs"] = [service.pieces(served).of(token) for token in tokens]
    return as_json(made)


async def detokenize(service: Service, request: Request) -> Response:
    asked = await parse(DetokenizeRequest, request)
    served = service.served(asked.model, task="language_model")
    if asked.tokens and max(asked.tokens) >= served.vocab:
        raise invalid(f"token {max(asked.tokens)} is not in the vocabulary of {served.vocab}", param="tokens")
    return as_json({"prompt": await service.decode(served, asked.tokens)})


async def tokenizer_info(service: Service, request: Request) -> Response:
    served = service.served(request.query_params.get("model"), task="language_model")
    end = served.tokenizer.end_token
    return as_json(
        {
            "model": served.name,
            "vocab_size": served.vocab,
            "eos_token": end,
            "eos_token_id": served.tokenizer.end_id,
            "bos_token": served.run.begin_token,
            "bos_token_id": served.run.begin_id,
            "pad_token": end,
            "chat_template": None if served.chat is None else served.chat.template,
            "tokenizer_class": "statewise",
        }
    )


async def predict(service: Service, request: Request, *, task: str | None = None) -> Response:
    """The answers of `statewise predict`, one for each row."""
    asked = await parse(PredictRequest, request)
    served = service.served(asked.model, task=task)
    if served.task == "language_model":
        raise invalid(f"model {served.name!r} writes text: ask /v1/completions", param="model")
    rows = asked.input if isinstance(asked.input, list) else [asked.input]
    if not 0 < len(rows) <= _MOST_ROWS:
        raise invalid(f"{len(rows)} rows; expected 1 to {_MOST_ROWS}", param="input")
    try:
        made = await service.ready_engine().predict(served.name, rows, owner=owner_of(request))
    except Refused as refused:
        service.refuse(refused)
    return as_json({"object": "list", "model": served.name, "task": served.task, "data": made})


async def health(service: Service, request: Request) -> Response:
    """Whether the process does its work. No key is needed."""
    if service.failed:
        raise HttpError(503, "the engine failed", code="engine_failed")
    return as_json({"status": "ok"})


async def ready(service: Service, request: Request) -> Response:
    service.ready_engine()
    return as_json({"status": "ready"})


async def version(service: Service, request: Request) -> Response:
    return as_json({"version": __version__})


async def metrics(service: Service, request: Request) -> Response:
    engine = service.ready_engine()
    used = resource.getrusage(resource.RUSAGE_SELF)
    gauges = {
        **engine.gauges(),
        "open_requests": float(len(service.exchanges)),
        "process_cpu_seconds": used.ru_utime + used.ru_stime,
        "process_open_files": float(len(os.listdir("/proc/self/fd"))) if os.path.isdir("/proc/self/fd") else 0.0,
    }
    return Response(engine.metrics.lines(gauges), media_type="text/plain; version=0.0.4")

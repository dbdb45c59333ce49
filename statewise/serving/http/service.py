"""What all routes share: the engine once it is loaded, the requests that are open, and who asks."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from starlette.requests import Request

from statewise.serving.base import AnyEngine
from statewise.serving.http.error import HttpError, invalid, of_refusal
from statewise.serving.http.exchange import Exchange
from statewise.serving.http.logprobs import Pieces
from statewise.serving.job import Job, Refused
from statewise.specs import ServingSpec

_LONG = 16384  # characters, or tokens, that are converted in another thread, so that streams go on
_MOST_KEPT, _MOST_KEPT_BYTES = 10_000, 64 << 20  # answers that can be read again


class Kept:
    """Answers by id, each for its owner: bounded by number and by bytes, the oldest goes first."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[str, bytes]] = {}
        self._bytes = 0

    def put(self, id: str, owner: str, answer: bytes) -> None:
        self._answers[id] = owner, answer
        self._bytes += len(answer)
        while len(self._answers) > _MOST_KEPT or self._bytes > _MOST_KEPT_BYTES:
            self.drop(next(iter(self._answers)))

    def get(self, id: str, owner: str) -> bytes | None:
        """None: there is none of that id, or it is of another owner."""
        known, answer = self._answers.get(id, (None, None))
        return answer if known == owner else None

    def drop(self, id: str) -> None:
        self._bytes -= len(self._answers.pop(id)[1])


class Service:
    """The state of the HTTP side. `engine` is None while runs are loaded."""

    def __init__(self, spec: ServingSpec) -> None:
        self.spec = spec
        self.engine: AnyEngine | None = None
        self.draining = self.failed = False
        self.exchanges: set[Exchange] = set()
        self._unwritten: list[Exchange] = []  # something came for these streams since the loop's last round
        self._pieces: dict[str, Pieces] = {}
        self.responses = Kept()

    def ready_engine(self) -> AnyEngine:
        if self.failed:
            raise HttpError(503, "the engine failed; the server is about to stop", code="engine_failed")
        if self.engine is None:
            raise HttpError(503, "the runs are being loaded; try again soon", code="loading")
        if self.draining:
            raise HttpError(503, "the server is stopping", code="stopping")
        return self.engine

    def check_room(self) -> None:
        """Refuse a request before it is read, if no text of it could be accepted."""
        try:
            self.ready_engine().check_room()
        except Refused as refused:
            self.refuse(refused)

    def submit(self, jobs: Sequence[Job]) -> None:
        engine = self.ready_engine()
        try:
            engine.submit(jobs)
        except Refused as refused:
            self.refuse(refused)

    def refuse(self, refused: Refused) -> NoReturn:
        if self.engine is not None and refused.reason != "overloaded":  # which the engine counts itself
            self.engine.metrics.rejected(refused.reason)
        raise of_refusal(refused) from None

    def cancel(self, jobs: Sequence[Job]) -> None:
        if self.engine is not None:
            self.engine.cancel(jobs)

    def served(self, name: str | None, *, task: str | None = None) -> Any:
        """The model of that name, or the only one for the task."""
        models = self.ready_engine().models
        able = {key: model for key, model in models.items() if task is None or model.task == task}
        if name is None:
            if len(able) != 1:
                raise invalid(f"name a model; served here: {', '.join(able) or 'none for this task'}", param="model")
            return next(iter(able.values()))
        if name not in models:
            raise HttpError(
                404,
                f"there is no model {name[:64]!r}; served here: {', '.join(models)}",
                param="model",
                code="model_not_found",
            )
        if name not in able:
            fits = f"; those that do: {', '.join(able)}" if able else ""
            raise invalid(f"model {name!r} is a {models[name].task} run and does not answer this{fits}", param="model")
        return models[name]

    async def encode(self, served: Any, text: str) -> list[int]:
        """The token ids of a text. A long one does not hold up the other requests."""
        if len(text) > self.spec.max_prompt * 64:
            self._refuse_length(None)
        ids = await _aside(served.tokenizer.encode, text)
        return [int(token) for token in ids]

    async def decode(self, served: Any, tokens: Sequence[int]) -> str:
        text: str = await _aside(served.tokenizer.decode, tokens)
        return text

    def check_length(self, served: Any, prompt: Sequence[int], max_tokens: int) -> None:
        if prompt and max(prompt) >= served.vocab:
            raise invalid(
                f"token {max(prompt)} is not in the vocabulary; expected 0 to {served.vocab - 1}", param="prompt"
            )
        if max_tokens > self.spec.max_tokens:
            raise invalid(f"max_tokens {max_tokens}; this server allows {self.spec.max_tokens}", param="max_tokens")
        if len(prompt) + max_tokens > self.spec.max_prompt:
            self._refuse_length(len(prompt) + max_tokens)

    def _refuse_length(self, tokens: int | None) -> NoReturn:
        asked = "the prompt is too long" if tokens is None else f"{tokens} tokens with those to generate"
        raise invalid(
            f"{asked}; this server allows {self.spec.max_prompt}", param="prompt", code="context_length_exceeded"
        )

    def pieces(self, served: Any) -> Pieces:
        if served.name not in self._pieces:
            self._pieces[served.name] = Pieces(served.tokenizer)
        return self._pieces[served.name]

    def existing(self, id: str, owner: str) -> str | None:
        """The id, if a state is saved under it."""
        try:
            self.ready_engine().store.describe(id, owner)
        except Refused as refused:
            if refused.reason == "not_found":
                return None
            self.refuse(refused)
        return id

    def deadline(self) -> float:
        return time.monotonic() + self.spec.request_seconds

    def flush_soon(self, exchange: Exchange) -> None:
        """Write to this stream when all that came in one turn of the engine is there."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unwritten.append(exchange)

    def _flush(self) -> None:
        unwritten, self._unwritten = self._unwritten, []
        now = time.monotonic()
        for exchange in unwritten:
            exchange.flush(now)

    def tick(self, now: float) -> None:
        for exchange in tuple(self.exchanges):
            exchange.tick(now)

    def fail_all(self, error: HttpError) -> None:
        """End every open request with an error."""
        for exchange in tuple(self.exchanges):
            exchange.fail(error)


async def _aside(convert: Callable[[Any], Any], given: Sequence[Any]) -> Any:
    return await asyncio.to_thread(convert, given) if len(given) > _LONG else convert(given)


def owner_of(request: Request) -> str:
    """Who asks: what the gate made of the key."""
    owner: str = request.scope["state"]["owner"]
    return owner

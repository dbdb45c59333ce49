"""`/v1/completions`, and what chats share with it: a request becomes jobs, their events one object or chunks."""

import json
import secrets
import time
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from statewise.decoding import Sampling
from statewise.serving.http.error import HttpError, as_json, invalid
from statewise.serving.http.exchange import Choice, Exchange
from statewise.serving.http.logprobs import Pieces
from statewise.serving.http.request import CompletionRequest, Drawing, Sessions, checked_id, parse
from statewise.serving.http.service import Service, owner_of
from statewise.serving.http.sse import EventStream
from statewise.serving.job import Job, Read, Scored

_DONE = b"data: [DONE]\n\n"
_CHOICES = ',"choices":[{"index":'
GOES_ON = ',"logprobs":null,"finish_reason":null}]}\n\n'
_SEEDS = 2**63
_NOBODY: set[int] = set()
_NO_IDS: frozenset[int] = frozenset()  # an empty set of each job's own would take 216 bytes
T = TypeVar("T", bound=Sessions)


def sampling_of(asked: Drawing, *, seed: int, vocab: int) -> Sampling:
    bias = tuple((int(token), float(add)) for token, add in asked.logit_bias.items())
    outside = [token for token in (*dict(bias), *asked.stop_token_ids) if token >= vocab]
    if outside:
        name = "logit_bias" if outside[0] in dict(bias) else "stop_token_ids"
        raise invalid(f"token {outside[0]} is not in the vocabulary; expected 0 to {vocab - 1}", param=name)
    return Sampling(
        repetition=asked.repetition_penalty,
        temperature=asked.temperature,
        top_k=asked.top_k if asked.top_k > 0 else None,
        top_p=asked.top_p if asked.top_p < 1 else None,
        min_p=asked.min_p or None,
        seed=seed,
        presence=asked.presence_penalty,
        frequency=asked.frequency_penalty,
        bias=bias,
    )


def first_seed(asked: Drawing) -> int:
    """The seed of the first choice; the next choices have the next seeds, so each is repeatable alone."""
    return secrets.randbits(62) if asked.seed is None else asked.seed % _SEEDS


def stops_of(asked: Drawing) -> tuple[str, ...]:
    return (asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop)


async def token_prompts(service: Service, served: Any, prompt: Any) -> list[tuple[list[int], str]]:
    """Each prompt as token ids and as text."""
    if isinstance(prompt, str) or isinstance(prompt[0], int):
        prompt = [prompt]
    if len(prompt) > service.spec.max_prompts:
        raise invalid(f"{len(prompt)} prompts; this server allows {service.spec.max_prompts}", param="prompt")
    made = []
    for given in prompt:
        if isinstance(given, str):
            made.append((await service.encode(served, given), given))
        else:
            service.check_length(served, given, 0)
            made.append((given, served.tokenizer.decode(given)))
    return made


class Form(NamedTuple):
    """How an answer names its parts."""

    id: str
    whole: str  # the object's name
    chunk: str
    field: Callable[[str], dict[str, Any]]  # a whole text
    delta: str  # the beginning of a text in a chunk; `delta_end` follows
    delta_end: str
    goes_on: str  # the end of a chunk that is not the last
    first: str  # the text of a stream's first chunk, where it has one of its own
    report: Callable[..., dict[str, Any]]  # probabilities


TEXT = Form(
    "cmpl",
    "text_completion",
    "text_completion",
    lambda text: {"text": text},
    '"text":',
    "",
    GOES_ON,
    "",
    Pieces.report,
)


class Completion:
    """One request: its jobs, and the answer in either form. It outlives what was asked, so it holds little."""

    __slots__ = (
        "_as_ids",
        "_pieces",
        "_served",
        "always_usage",
        "candidates",
        "created",
        "echo",
        "form",
        "id",
        "n",
        "prompts",
        "with_ids",
        "with_usage",
    )

    def __init__(
        self,
        service: Service,
        served: Any,
        asked: CompletionRequest,
        prompts: Sequence[tuple[list[int], str]],
        form: Form = TEXT,
    ) -> None:
        self.prompts, self._served, self.form = prompts, served, form
        self.n, self.candidates = asked.n, asked.best_of or asked.n
        self.echo, self.with_ids = asked.echo, asked.return_token_ids
        self.with_usage = bool(asked.stream_options.include_usage)
        self.always_usage = self.with_usage and bool(asked.stream_options.continuous_usage_stats)
        self._as_ids = asked.return_tokens_as_token_ids
        self.id, self.created = f"{form.id}-{secrets.token_hex(12)}", int(time.time())
        self._pieces = service.pieces(served) if asked.logprobs is not None else None
        self._check(service, asked)

    def _check(self, service: Service, asked: CompletionRequest) -> None:
        spec = service.spec
        texts = self.candidates * len(self.prompts)
        most = min(4 * spec.slots, spec.slots + spec.queue)
        if asked.suffix:
            raise invalid(
                "suffix is not supported: these models read in one direction",
                param="suffix",
                code="unsupported_parameter",
            )
        if self.candidates < asked.n:
            raise invalid(f"best_of {asked.best_of} is below n {asked.n}", param="best_of")
        if self.candidates > spec.max_choices:
            name = "n" if asked.best_of is None else "best_of"
            raise invalid(f"{name} {self.candidates}; this server allows {spec.max_choices}", param=name)
        if asked.stream and self.candidates > asked.n:
            raise invalid("best_of cannot be streamed: the best is known at the end", param="best_of")
        if texts > most:
            raise invalid(f"{texts} texts at once; this server allows {most}: fewer prompts, or a smaller n", param="n")
        if asked.logprobs is not None and asked.logprobs > spec.max_logprobs:
            raise invalid(f"logprobs {asked.logprobs}; this server allows {spec.max_logprobs}", param="logprobs")
        if not asked.stream and "stream_options" in asked.model_fields_set:
            raise invalid("stream_options is for streams: set stream to true, or leave it out", param="stream_options")
        if asked.max_tokens == 0 and not (asked.echo or asked.save_state or asked.session_id):
            raise invalid("max_tokens 0 needs echo or save_state: there would be nothing to answer", param="max_tokens")
        if asked.min_tokens > asked.max_tokens:
            raise invalid(f"min_tokens {asked.min_tokens} is above max_tokens {asked.max_tokens}", param="min_tokens")
        if texts > 1 and (asked.session_id or isinstance(asked.save_state, str)):
            name = "session_id" if asked.session_id else "save_state"
            raise invalid(f"{name} takes one text, here are {texts}; save_state=true gives each its own id", param=name)
        if asked.session_id and (asked.state or asked.save_state):
            raise invalid("session_id names where to start and where to save; leave out state and save_state")
        for prompt, _ in self.prompts:
            service.check_length(self._served, prompt, asked.max_tokens)

    def choices(
        self,
        service: Service,
        asked: CompletionRequest,
        owner: str,
        *,
        whole: bool = False,
        read: Read | None = None,
    ) -> list[Choice]:
        """A job for each text, in the order of the answer. `whole` and `read` are those of a job."""
        seed, deadline = first_seed(asked), service.deadline()
        start, save = asked.state, asked.save_state
        if asked.session_id:
            save, start = asked.session_id, service.existing(asked.session_id, owner)
        needed = asked.logprobs if asked.logprobs is not None or self.candidates == asked.n else 0
        made: list[Choice] = []
        for prompt, _ in self.prompts:
            for number in range(self.candidates):
                choice = Choice(len(made))
                choice.job = Job(
                    model=self._served.name,
                    prompt=prompt,
                    receive=choice.receive,
                    receive_token=choice.receive_token,
                    sampling=sampling_of(asked, seed=(seed + number) % _SEEDS, vocab=self._served.vocab),
                    max_tokens=asked.max_tokens,
                    min_tokens=asked.min_tokens,
                    stop=stops_of(asked),
                    stop_ids=frozenset(asked.stop_token_ids) if asked.stop_token_ids else _NO_IDS,
                    ignore_end=asked.ignore_eos,
                    logprobs=needed,
                    echo=asked.echo and asked.logprobs is not None,
                    whole=whole,
                    read=read,
                    start=start,
                    save=new_id("state") if save is True else save or None,
                    owner=owner,
                    deadline=deadline,
                )
                made.append(choice)
        return made

    def head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self._served.name,
            "system_fingerprint": f"fp_{self._served.fingerprint}",
        }

    def usage(self, choices: Sequence[Choice]) -> dict[str, Any]:
        read = sum(len(prompt) for prompt, _ in self.prompts)
        written = sum(choice.tokens for choice in choices)
        cached = sum(choice.cached for choice in choices[:: self.candidates])
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def prompt_of(self, choice: Choice) -> tuple[list[int], str]:
        return self.prompts[choice.index // self.candidates]

    def answer(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """The whole answer. Of `best_of`, those with the highest mean log-probability, best first."""
        groups = [choices[at : at + self.candidates] for at in range(0, len(choices), self.candidates)]
        kept = []
        for group in groups:
            taken = [(choice, *choice.take()) for choice in group]
            if self.candidates > self.n:
                taken.sort(key=lambda candidate: -_mean([token.logprob or 0.0 for token in candidate[3]]))
            kept += taken[: self.n]
        made = []
        for index, (choice, text, ids, scored) in enumerate(kept):
            prompt_text = self.prompt_of(choice)[1]
            shown = prompt_text + text if self.echo else text
            made.append(
                {
                    "index": index,
                    **self.form.field(shown),
                    "logprobs": self.logprobs(choice, scored, offset=len(prompt_text), first=True),
                    "finish_reason": choice.finish,
                    **self.extras(choice, ids, first=True),
                }
            )
        return {**self.head(self.form.whole), "choices": made, "usage": self.usage(choices)}

    def logprobs(self, choice: Choice, scored: list[Scored], *, offset: int, first: bool) -> dict[str, Any] | None:
        if self._pieces is None:
            return None
        if first and self.echo:
            return self.form.report(self._pieces, [*choice.prompt, *scored], offset=0, as_ids=self._as_ids)
        return self.form.report(self._pieces, scored, offset=offset, as_ids=self._as_ids)

    def extras(self, choice: Choice, ids: list[int], *, first: bool) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if self.with_ids:
            made["token_ids"] = ids
            if first:
                made["prompt_token_ids"] = self.prompt_of(choice)[0]
        if choice.state is not None:
            made["state"] = choice.state
        return made


class Chunks:
    """A completion as chunks of a stream: one prepared beginning, one string for each write."""

    __slots__ = ("_before", "_completion", "_exchange", "_fresh", "_offsets", "_plain", "_read")

    def __init__(self, completion: Completion, exchange: Exchange, *, scored: bool) -> None:
        self._completion, self._exchange = completion, exchange
        form = completion.form
        head = json.dumps(completion.head(form.chunk), separators=(",", ":"))[:-1]
        usage = ',"usage":null' if completion.with_usage else ""
        self._before = f"data: {head}{usage}{_CHOICES}"
        self._read = sum(len(prompt) for prompt, _ in completion.prompts) if completion.always_usage else None
        self._plain = not scored and not completion.with_ids
        self._offsets = [len(completion.prompt_of(choice)[1]) for choice in exchange.choices]
        special = not self._plain or completion.echo or form.first
        # Whose first chunk is different; an empty set of its own would be as large as the rest of this.
        self._fresh = {choice.index for choice in exchange.choices} if special else _NOBODY

    def _begin(self) -> str:
        """A chunk as far as the number of its choice."""
        if self._read is None:
            return self._before
        read, written = self._read, sum([choice.tokens for choice in self._exchange.choices])
        usage = f'"prompt_tokens":{read},"completion_tokens":{written},"total_tokens":{read + written}'
        return self._before.replace('"usage":null', f'"usage":{{{usage}}}', 1)

    def news(self) -> bytes:
        return "".join([self._chunk(choice) for choice in self._exchange.taken()]).encode("ascii")

    def _chunk(self, choice: Choice) -> str:
        text, ids, scored = choice.take()
        index, finish = choice.index, choice.finish
        if finish is None and self._plain and not self._fresh:
            form = self._completion.form
            return f"{self._begin()}{index},{form.delta}{quoted(text)}{form.goes_on}" if text else ""
        if not (text or ids or scored or finish):
            return ""
        first = index in self._fresh
        self._fresh.discard(index)
        completion, offset = self._completion, self._offsets[index]
        shown = completion.prompt_of(choice)[1] + text if first and completion.echo else text
        logprobs = completion.logprobs(choice, scored, offset=offset, first=first)
        self._offsets[index] = offset + len(text)
        extras = "".join(
            f", {quoted(name)}: {json.dumps(value)}"
            for name, value in completion.extras(choice, ids, first=first).items()
        )
        ended = "null" if finish is None else quoted(finish)
        form = completion.form
        begun = f"{self._begin()}{index},{form.first}{form.goes_on}" if first and form.first else ""
        return (
            f"{begun}{self._begin()}{index},{form.delta}{quoted(shown)}{form.delta_end},"
            f'"logprobs": {json.dumps(logprobs, allow_nan=False)}, "finish_reason": {ended}{extras}}}]}}\n\n'
        )

    def end(self) -> bytes:
        if not self._completion.with_usage:
            return _DONE
        completion = self._completion
        usage = completion.usage(self._exchange.choices)
        last = completion.head(completion.form.chunk) | {"choices": [], "usage": usage}
        return f"data: {json.dumps(last)}\n\n".encode("ascii") + _DONE

    def failure(self, error: HttpError) -> bytes:
        return f"data: {json.dumps(error.content())}\n\n".encode("ascii") + _DONE


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("-inf")


def new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"


async def complete(service: Service, request: Request) -> Response:
    service.check_room()
    asked = with_session(await parse(CompletionRequest, request), request)
    served = service.served(asked.model, task="language_model")
    completion = Completion(service, served, asked, await token_prompts(service, served, asked.prompt))
    return await answered(service, request, asked, completion, completion.choices(service, asked, owner_of(request)))


def with_session(asked: T, request: Request) -> T:
    """A session may be named by a header."""
    header = request.headers.get("x-session-id")
    if header is None or asked.session_id is not None:
        return asked
    return asked.model_copy(update={"session_id": checked_id(header)})


async def answered(
    service: Service, request: Request, asked: CompletionRequest, completion: Completion, choices: Sequence[Choice]
) -> Response:
    exchange = Exchange(service, request, choices)
    if asked.stream:
        return EventStream(exchange, Chunks(completion, exchange, scored=asked.logprobs is not None))
    await exchange.finish()
    return as_json(completion.answer(exchange.choices))

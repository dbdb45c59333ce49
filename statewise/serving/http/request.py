"""What may be asked: every field has a type and bounds, null counts as left out, and unknown fields are ignored."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from starlette.requests import Request

from statewise.serving.http.error import HttpError, invalid, of_validation
from statewise.serving.store import is_state_id
from statewise.specs import from_strict_json

STATE_ID = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$"
_LARGEST_ID = 2**31
_LONGEST_STOP = 64
_MOST_STOPS = 4

# What other servers can do: if it were ignored, the answer would not be what was asked for.
_UNSUPPORTED = frozenset(
    [
        *("allowed_token_ids", "background", "bad_words", "dry_multiplier", "functions", "grammar", "guided_choice"),
        *("guided_grammar", "guided_json", "guided_regex", "include_stop_str_in_output", "json_schema", "mirostat"),
        *("prompt_embeds", "prompt_logprobs", "response_format", "structured_outputs", "tools"),
        *("top_logprobs", "truncate_prompt_tokens", "use_beam_search", "xtc_probability"),
    ]
)
_PLAIN_TEXT = {"type": "text"}  # as a response's format, what is answered anyway

T = TypeVar("T", bound="Body")


class Body(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


async def parse(kind: type[T], request: Request) -> T:
    """The body of a request as a checked object."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != "application/json":
        raise HttpError(415, "expected content-type: application/json", code="content_type")
    try:
        value = from_strict_json(await request.body())
    except ValueError as error:
        raise invalid(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise invalid("the body is JSON, but not an object; expected {...}", code="invalid_json")
    given = {name: item for name, item in value.items() if item is not None}
    for name in sorted(_UNSUPPORTED.intersection(given)):
        if name not in kind.model_fields and given[name] and given[name] != _PLAIN_TEXT:
            raise invalid(f"{name} is not supported; leave it out", param=name, code="unsupported_parameter")
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise of_validation(error) from None


def _refuse_if(problem: Callable[[Any], str | None]) -> BeforeValidator:
    """For JSON values that one sentence explains better than a union of types."""

    def validate(value: Any) -> Any:
        if reason := problem(value):
            raise ValueError(reason)
        return value

    return BeforeValidator(validate)


def is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST_ID


def _has_half_characters(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _prompt_problem(value: Any) -> str | None:
    if isinstance(value, str):
        return "holds half a character (an unpaired surrogate)" if _has_half_characters(value) else None
    if not isinstance(value, list):
        return "expected a text, a list of texts, a list of token ids, or a list of such lists"
    if not value:
        return "an empty list; expected at least one prompt"
    if all(isinstance(item, str) for item in value):
        return next(filter(None, map(_prompt_problem, value)), None)
    if all(map(is_token, value)):
        return None
    if all(isinstance(item, list) and all(map(is_token, item)) for item in value):
        return None
    return "a list must hold texts alone, token ids (0 or more) alone, or lists of token ids alone"


def _stop_problem(value: Any) -> str | None:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return "expected a text or a list of texts"
    if len(texts) > _MOST_STOPS:
        return f"{len(texts)} texts; expected at most {_MOST_STOPS}"
    if any(not 0 < len(text) <= _LONGEST_STOP or _has_half_characters(text) for text in texts):
        return f"a stop text needs 1 to {_LONGEST_STOP} characters"
    return None


def _bias_problem(value: Any) -> str | None:
    if not isinstance(value, dict) or len(value) > 1024:
        return "expected an object of at most 1024 token ids, each with a number from -100 to 100"
    for token, add in value.items():
        if not re.fullmatch(r"[0-9]{1,9}", token):
            return f"{token[:32]!r} is not a token id"
        if isinstance(add, bool) or not isinstance(add, int | float) or not -100 <= add <= 100:
            return f"the bias of token {token} is not a number from -100 to 100"
    return None


_STRING: dict[str, Any] = {"type": "string"}
_TOKEN: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": _LARGEST_ID - 1}


def _list_of(items: dict[str, Any], *, least: int = 1) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least}


_STOP_TEXT = {"type": "string", "minLength": 1, "maxLength": _LONGEST_STOP}
_STOP_TEXTS = {**_list_of(_STOP_TEXT, least=0), "maxItems": _MOST_STOPS}
_BIASES = {
    "type": "object",
    "propertyNames": {"pattern": "^[0-9]{1,9}$"},
    "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
}
_PROMPTS = [_STRING, _list_of(_STRING), _list_of(_TOKEN), _list_of(_list_of(_TOKEN, least=0))]

Prompt = Annotated[Any, _refuse_if(_prompt_problem), WithJsonSchema({"anyOf": _PROMPTS})]
Stop = Annotated[Any, _refuse_if(_stop_problem), WithJsonSchema({"anyOf": [_STOP_TEXT, _STOP_TEXTS]})]
Bias = Annotated[Any, _refuse_if(_bias_problem), WithJsonSchema(_BIASES)]
Text = Annotated[str, Field(max_length=1 << 24)]
Name = Annotated[str, Field(min_length=1, max_length=256)]
MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]
StateId = Annotated[str, Field(pattern=STATE_ID, description="letters, digits, _, - and .; the first is no dot")]
TokenId = Annotated[int, Field(ge=0, lt=_LARGEST_ID)]
Count = Annotated[int, Field(ge=0, le=_LARGEST_ID)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


def checked_id(value: str) -> str:
    """A state's id from a path or a header."""
    if not is_state_id(value):
        raise invalid(f"{value[:64]!r} is not an id of a state; expected 1 to 128 of A-Z a-z 0-9 _ - .", param="id")
    return value


class StreamOptions(Body):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = Field(False, description="with include_usage: in every chunk")


class Drawing(Body):
    """How tokens are chosen, in every request that generates."""

    model: Name | None = Field(None, description="the name of a served run; default: the only one")
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=-1, le=_LARGEST_ID)] = 0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] = 1.0
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: Bias = Field(default_factory=dict)
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Stop = Field(default_factory=list)
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64)] = Field(default_factory=list)
    ignore_eos: bool = False
    min_tokens: Count = 0
    stream: bool = False


class Sessions(Drawing):
    """Where a text starts and what is kept of it, in completions and chats."""

    n: Annotated[int, Field(ge=1, le=128)] = 1
    stream_options: StreamOptions = StreamOptions()
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = Field(False, description="tokens of logprobs as token_id:N")
    user: Text = ""
    session_id: StateId | None = Field(None, description="continue from this state if it exists, and save under it")
    state: StateId | None = Field(None, description="a saved state to continue from")
    save_state: StateId | bool = Field(False, description="keep the state after the text: under this id, or a new one")


class CompletionRequest(Sessions):
    prompt: Prompt = ""
    max_tokens: Count = 16
    best_of: Annotated[int, Field(ge=1, le=128)] | None = None
    echo: bool = False
    logprobs: Annotated[int, Field(ge=0, le=128)] | None = None
    suffix: Text = ""


class ChatText(Body):
    type: Literal["text"] = "text"
    text: Text


class ChatMessage(Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[ChatText]


class ChatFormatOption(Body):
    type: Literal["text"] = "text"


class ChatRequest(Sessions):
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=4096)]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = Field(None, description="goes before max_tokens; default: 256")
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=128)] = 0
    response_format: ChatFormatOption = ChatFormatOption()
    tools: Annotated[list[Any], Field(max_length=0, description="not supported")] = Field(default_factory=list)


class InputText(Body):
    type: Literal["input_text"] = "input_text"
    text: Text


class Message(Body):
    type: Literal["message"] = "message"
    role: Literal["user"] = Field("user", description="the only role: plain language models know no other")
    content: Text | list[InputText]


class ResponseRequest(Drawing):
    input: Text | Annotated[list[Message], Field(min_length=1, max_length=64)] = ""
    max_output_tokens: Count = 256
    previous_response_id: StateId | None = None
    store: bool = True
    instructions: Text = ""
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)] = Field(default_factory=dict)


class StateRequest(Body):
    model: Name | None = None
    prompt: Prompt = ""
    state: StateId | None = Field(None, description="a saved state to read from; default: the beginning of a text")
    id: StateId | None = Field(None, description="the id to save under; default: a new one")


class ForkRequest(Body):
    id: StateId | None = None


class PredictRequest(Body):
    model: Name | None = None
    input: Any = Field(description="a row, or a list of rows, as `statewise predict` reads them from a file")


class TokenizeRequest(Body):
    model: Name | None = None
    prompt: Text
    add_special_tokens: bool = True
    return_token_strs: bool = False


class DetokenizeRequest(Body):
    model: Name | None = None
    tokens: list[TokenId]

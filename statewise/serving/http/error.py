"""Every refusal has one form: `{"error": {"message", "type", "param", "code"}}`, as OpenAI's clients expect it."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from statewise.serving.job import Refused

_STATUS = {"invalid": 400, "not_found": 404, "overloaded": 429, "stopping": 503, "deadline": 503, "failed": 500}
_TYPE = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_RETRY_AFTER = {429: "1", 503: "5"}  # seconds


class HttpError(Exception):
    """A request that is refused with a status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})
        if status in _RETRY_AFTER:
            self.headers.setdefault("retry-after", _RETRY_AFTER[status])

    def content(self) -> dict[str, Any]:
        kind = _TYPE.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        return as_json(self.content(), status=self.status, headers=self.headers)


def as_json(content: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return of_json(json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii"), status, headers)


def of_json(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, status_code=status, headers=headers, media_type="application/json")


def as_html(text: str) -> Response:
    return Response(text, media_type="text/html")


def invalid(message: str, *, param: str | None = None, code: str | None = None) -> HttpError:
    return HttpError(400, message, param=param, code=code)


def of_refusal(refused: Refused) -> HttpError:
    """What the engine refused, as a status."""
    return HttpError(_STATUS[refused.reason], refused.message, param=refused.param, code=refused.code or refused.reason)


def of_validation(error: ValidationError) -> HttpError:
    """The first thing that is wrong with a request, with the name of its field. Of several forms of a field, that form
    counts of which most was understood.
    """
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    first = max(
        (problem for problem in errors if problem["loc"][:1] == errors[0]["loc"][:1]),
        key=lambda problem: len(problem["loc"]),
    )
    place = [str(part) for part in first["loc"]]
    param = place[0] if place else None
    inner = f"{place[-1]}: " if len(place) > 1 and isinstance(first["loc"][-2], int) else ""
    message = first["msg"].removeprefix("Value error, ")
    return invalid(f"{param}: {inner}{message}" if param else message, param=param)

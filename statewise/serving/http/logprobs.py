"""Probabilities of tokens as completions report them: pieces of text, nats, the best alternatives, offsets."""

from collections.abc import Callable, Sequence
from typing import Any

from statewise.decoding import TextStream
from statewise.serving.job import Scored

_LOWEST = -9999.0  # for a probability of 0: minus infinity is not JSON


class Pieces:
    """The text of single tokens of one tokenizer, as it is inside a text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, str] = {int(tokenizer.end_id): str(tokenizer.end_token)}
        before = [int(token) for token in tokenizer.encode("a")][-1:]
        self._before, self._skip = before, len(tokenizer.decode(before))

    def of(self, token: int) -> str:
        """`token_id:N`, if the token is a part of a character."""
        piece = self._known.get(token)
        if piece is None:
            text = self._tokenizer.decode([*self._before, token])[self._skip :]
            piece = self._known[token] = text if text and "\ufffd" not in text else _as_id(token)
        return piece

    def report(self, scored: Sequence[Scored], *, offset: int, as_ids: bool = False) -> dict[str, Any]:
        """The `logprobs` of a choice; `offset` is where its first token begins in the text."""
        name = _as_id if as_ids else self.of
        return {
            "tokens": [name(token.id) for token in scored],
            "token_logprobs": [_finite(token.logprob) for token in scored],
            "top_logprobs": [_top(token, name) for token in scored],
            "text_offset": self._offsets([token.id for token in scored], offset),
        }

    def report_chat(self, scored: Sequence[Scored], *, offset: int, as_ids: bool = False) -> dict[str, Any]:
        """The `logprobs` of a chat's choice. It has no offsets."""
        name = _as_id if as_ids else self.of
        return {
            "content": [
                {**_token(token.id, token.logprob, name), "top_logprobs": [_token(*best, name) for best in token.top]}
                for token in scored
            ],
            "refusal": None,
        }

    def _offsets(self, ids: Sequence[int], offset: int) -> list[int]:
        offsets = []
        if any(self.of(token).startswith("token_id:") for token in ids):
            text = TextStream(self._tokenizer.decode)
            for token in ids:
                offsets.append(offset)
                offset += len(text.feed(token))
            return offsets
        for token in ids:
            offsets.append(offset)
            offset += len(self.of(token)) if token != self._tokenizer.end_id else 0
        return offsets


def _token(token: int, logprob: float | None, name_of: Callable[[int], str]) -> dict[str, Any]:
    text = name_of(token)
    known = None if text.startswith("token_id:") else list(text.encode())
    return {"token": text, "logprob": _finite(logprob), "bytes": known}


def _as_id(token: int) -> str:
    return f"token_id:{token}"


def _top(scored: Scored, name_of: Callable[[int], str]) -> dict[str, float] | None:
    """The token itself, and then the best alternatives."""
    if scored.logprob is None:
        return None
    named: dict[str, float] = {}
    for token, logprob in {scored.id: scored.logprob, **dict(scored.top)}.items():
        name = name_of(token)
        while name in named:  # two tokens with one text
            name += f" ({_as_id(token)})"
        named[name] = _finite(logprob) or 0.0
    return named


def _finite(logprob: float | None) -> float | None:
    return logprob if logprob is None or logprob > _LOWEST else _LOWEST

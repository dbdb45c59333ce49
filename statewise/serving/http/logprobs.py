"""Probabilities of tokens as completions report them: pieces of text, nats, the best alternatives, offsets."""

from collections.abc import Sequence
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
            piece = self._known[token] = text if text and "\ufffd" not in text else f"token_id:{token}"
        return piece

    def report(self, scored: Sequence[Scored], *, offset: int) -> dict[str, Any]:
        """The `logprobs` of a choice; `offset` is where its first token begins in the text."""
        best = any(one.top for one in scored)
        return {
            "tokens": [self.of(one.id) for one in scored],
            "token_logprobs": [_finite(one.logprob) for one in scored],
            "top_logprobs": [self._top(one) for one in scored] if best else None,
            "text_offset": self._offsets([one.id for one in scored], offset),
        }

    def report_chat(self, scored: Sequence[Scored], *, offset: int) -> dict[str, Any]:
        """The `logprobs` of a chat's choice. It has no offsets."""
        return {
            "content": [
                {**self._token(one.id, one.logprob), "top_logprobs": [self._token(*best) for best in one.top]}
                for one in scored
            ],
            "refusal": None,
        }

    def _token(self, token: int, logprob: float | None) -> dict[str, Any]:
        text = self.of(token)
        known = None if text.startswith("token_id:") else list(text.encode())
        return {"token": text, "logprob": _finite(logprob), "bytes": known}

    def _top(self, scored: Scored) -> dict[str, float] | None:
        if scored.logprob is None:
            return None
        named: dict[str, float] = {}
        for token, logprob in scored.top:
            name = self.of(token)
            while name in named:  # two tokens with one text
                name += f" (token_id:{token})"
            named[name] = _finite(logprob) or 0.0
        return named

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


def _finite(logprob: float | None) -> float | None:
    return logprob if logprob is None or logprob > _LOWEST else _LOWEST

"""Tokens to text, incrementally: never half a character, never a part of a stop string."""

from collections.abc import Callable, Sequence

_INCOMPLETE = "\ufffd"


class TextStream:
    """Feed tokens one by one; get the text that is certain by now.

    `before` are tokens whose text was already shown (the prompt's, or an earlier session's): they give
    the decoder its context and are not shown again.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], *, before: Sequence[int] = (), stop: Sequence[str] = ()
    ) -> None:
        self._decode = decode
        self._tokens = list(before)
        self._shown = len(_complete(decode(self._tokens)))  # characters of the window's text already handled
        self._stop = [text for text in stop if text]
        self._pending = ""
        self.stopped = False

    def feed(self, token: int) -> str:
        """The text that this token makes certain; empty once a stop string was met."""
        if self.stopped:
            return ""
        self._tokens.append(token)
        text = _complete(self._decode(self._tokens))
        self._pending += text[self._shown :]
        self._shown = max(self._shown, len(text))
        if len(self._tokens) > 64:
            # The window stays short: distant tokens cannot change how the next one decodes.
            self._tokens = self._tokens[-32:]
            self._shown = len(_complete(self._decode(self._tokens)))
        return self._release()

    def _release(self) -> str:
        places = [self._pending.find(stop) for stop in self._stop if stop in self._pending]
        if places:
            self.stopped = True
            at = min(places)
            text, self._pending = self._pending[:at], ""
            return text
        held = max((_overlap(self._pending, stop) for stop in self._stop), default=0)
        text, self._pending = self._pending[: len(self._pending) - held], self._pending[len(self._pending) - held :]
        return text

    def finish(self) -> str:
        """What was held back in case a stop string followed."""
        text, self._pending = self._pending, ""
        return text


def _complete(text: str) -> str:
    """Bytes that begin a character decode to one mark at the end; marks before it are there to stay."""
    return text.removesuffix(_INCOMPLETE)


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)

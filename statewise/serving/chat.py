"""A run's chat format: messages become token ids, and the text of an answer ends where the format says.

The format is the template that lies in the run's folder as `chat_template.jinja`, as Hugging Face folders have it.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from statewise.data import Tokenizer
from statewise.serving.job import Read, Refused
from statewise.serving.template import ChatTemplate, Piece, Text

FILE = "chat_template.jinja"
_BEGIN = ("<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>", "[CLS]")  # special tokens that begin a text
_SAMPLE = ("user", "?"), ("assistant", "x")


class Asked(NamedTuple):
    """Messages as the engine reads them."""

    ids: list[int]
    read: Read | None  # what a saved state may have read of them already


class ChatFormat:
    """`stop` or `stop_id` ends an answer, besides the end of a text."""

    def __init__(self, template: str, tokenizer: Tokenizer, *, begin: str | None = None) -> None:
        """`begin`: the run's `data.begin`; None: the tokenizer's first special token that is known to begin texts."""
        self.template = template
        self._tokenizer, self._special = tokenizer, tokenizer.special_ids
        longest_first = sorted(filter(None, self._special), key=len, reverse=True)
        self._specials = re.compile(f"({'|'.join(map(re.escape, longest_first))})" if longest_first else r"(?!)")
        end = tokenizer.end_token
        begin = begin or next((token for token in _BEGIN if token in self._special), end)
        self._messages = ChatTemplate(template, tokens={"bos_token": begin, "eos_token": end, "pad_token": end})
        closing = self._closing()
        marks = [part for part in self._parts(closing) if isinstance(part, int)]
        self.stop_id = marks[0] if marks else None
        self.stop = "" if marks else "".join(piece.text for piece in closing)

    def _closing(self) -> Text:
        """What follows an answer: of the end of a conversation, or if that is nothing, up to the next message."""
        after = _after(self._messages.render(_SAMPLE, answer=False), 1)
        if not after:
            next_one = _after(self._messages.render([*_SAMPLE, _SAMPLE[0]], answer=False), 1)
            until = next((at for at, piece in enumerate(next_one) if piece.message is not None), len(next_one))
            after = next_one[:until]
        return after

    def begin(self, messages: Sequence[tuple[str, str]]) -> Asked:
        """A conversation from its beginning. The template puts the beginning symbol, or does not."""
        return Asked(self._ids(self._messages.render(messages, answer=True)), None)

    def go_on(self, messages: Sequence[tuple[str, str]]) -> Asked:
        """What a saved state, which ends with an answer, reads next: the end of the answer and new messages.

        An answer that ended by itself was read with its end.
        """
        after = _after(self._messages.render([*_SAMPLE, *messages], answer=True), 1)
        ids = self._ids(after)
        if self.stop_id is not None:
            length = ids.index(self.stop_id) + 1 if self.stop_id in ids else 0
            return Asked(ids, Read((self.stop_id,), length))
        closed = tuple(int(token) for token in self._tokenizer.encode(self.stop))
        return Asked(ids, Read(closed, len(closed) if tuple(ids[: len(closed)]) == closed else 0))

    def _ids(self, text: Text) -> list[int]:
        ids: list[int] = []
        for part in self._parts(text):
            ids += [part] if isinstance(part, int) else map(int, self._tokenizer.encode(part))
        return ids

    def _parts(self, text: Text) -> list[int | str]:
        """Special tokens of the template as ids, and the text between them. What messages say is only text."""
        parts: list[int | str] = []
        for piece in text:
            for part in self._split(piece):
                if isinstance(part, str) and parts and isinstance(parts[-1], str):
                    parts[-1] += part
                elif part != "":
                    parts.append(part)
        return parts

    def _split(self, piece: Piece) -> list[int | str]:
        if piece.message is not None:
            return [piece.text]
        return [self._special.get(part, part) for part in self._specials.split(piece.text)]


def _after(text: Text, message: int) -> Text:
    """What follows a message's content."""
    said = [at for at, piece in enumerate(text) if piece.message == message]
    if not said:
        raise Refused(
            "invalid",
            "the run's chat template leaves out an answer, so a conversation cannot be continued with it",
            param="messages",
            code="chat_template_not_supported",
        )
    return text[said[-1] + 1 :]

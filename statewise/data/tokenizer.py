"""Text to ids and back: a thin wrapper over a Hugging Face `tokenizers.Tokenizer`.

What is saved is an ordinary tokenizer.json, which that library alone opens with the same ids.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray

from statewise.data.text import slices
from statewise.data.tokenizer_training import END, NUM_CODE_POINTS, byte_backend, char_backend, train_backend
from statewise.disk import write
from statewise.specs import TOKENIZERS, UserError, from_json, read_small

# Special tokens that end a text, ours first, then those of well-known tokenizers.
_END_NAMES = (END, "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]", "<|im_end|>", "[SEP]")
_LARGEST_FILE = 1 << 26
_LARGEST_VOCAB = 1 << 24
_LARGEST_GAP = 1 << 16
_LARGEST_GROWTH = 64  # most characters that rules may make of one
# The library needs about a hundred bytes per token while encoding, so long text is split.
_SLICE, _GROUP = 1 << 17, 1 << 20
_NOTHING = np.zeros(0, dtype=np.int64)


class _Lookup(NamedTuple):
    """Encoding by table lookup, where each character or byte is a token."""

    encoding: str
    code: np.dtype[np.unsignedinteger]
    table: NDArray[np.int64]

    def encode(self, text: str) -> NDArray[np.int64]:
        return self.table[np.frombuffer(text.encode(self.encoding), dtype=self.code)]


class Tokenizer:
    """`end_id` follows every document, and `begin_id()` is the first input of each.

    A file without an end of text gets one.

    `unknown_id` is None if every text can be encoded.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        end = _end_name(backend)
        self.end_was_added = backend.token_to_id(end) is None
        if self.end_was_added:
            backend.add_special_tokens([end])
        ids = backend.get_vocab().values()
        self.vocab: int = max(ids) + 1
        sparse = self.vocab > 2 * len(ids) + _LARGEST_GAP  # every id is a row of the embedding
        if self.vocab > _LARGEST_VOCAB or sparse or len(set(ids)) < len(ids):
            raise UserError(f"a vocabulary of {len(ids)} tokens with {len(set(ids))} ids up to {self.vocab - 1}")
        self.end_token, self.end_id = end, int(backend.token_to_id(end) or 0)
        self.unknown_id = _unknown_id(backend)
        self._backend = backend
        self._lookup = _lookup(backend)

    @classmethod
    def train(
        cls, kind: str, texts: Iterable[str], *, vocab: int | None = None, lower: bool = False, min_count: int = 1
    ) -> "Tokenizer":
        """Learn a vocabulary: `kind` is one of `TOKENIZERS`, or `whole`, where each text is a token."""
        return cls(train_backend(kind, texts, vocab=vocab, lower=lower, min_count=min_count))

    @cached_property
    def special_ids(self) -> dict[str, int]:
        """The special tokens, by their names. In a text they are ordinary text."""
        added = self._backend.get_added_tokens_decoder().items()
        return {self.end_token: self.end_id} | {token.content: int(i) for i, token in added if token.special}

    def begin_id(self, begin: str | None = None) -> int:
        """What a model reads before a text: the special token `begin`, or the one that ends texts."""
        if begin is not None and begin not in self.special_ids:
            raise UserError(
                f"data.begin is {begin!r}, which is no special token of this tokenizer",
                fix=f"choose one of {', '.join(self.special_ids)}, or leave it out",
            )
        return self.end_id if begin is None else self.special_ids[begin]

    @property
    def own_begin(self) -> str | None:
        """The special token that the tokenizer itself puts before a text, unless that is the one that ends texts."""
        first = self._backend.encode("", add_special_tokens=True).ids[:1]
        names = [name for name, i in self.special_ids.items() if [i] == first and i != self.end_id]
        return names[0] if names else None

    def encode(self, text: str) -> NDArray[np.int64]:
        """Ids of text; no end is added, and special tokens in the text are ordinary text."""
        try:
            return self._lookup.encode(text) if self._lookup else self.encode_with_library(text)
        except UnicodeEncodeError as error:
            raise UserError(
                f"the text holds half a character at index {error.start}: {text[error.start]!r}",
                fix="give valid Unicode text",
            ) from None

    def encode_many(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """`encode` of each, in parallel if the library does the encoding."""
        return [self._lookup.encode(text) for text in texts] if self._lookup else self._with_library(texts)

    def encode_words(self, words: Sequence[str]) -> NDArray[np.int64]:
        """One id for each word, for a tokenizer of kind `whole`."""
        distinct = sorted(set(words))
        ids = self.encode_many(distinct)
        # A very long word is split; neither it nor its parts are in the vocabulary.
        assert all(len(word_ids) == 1 or len(word) > _SLICE for word, word_ids in zip(distinct, ids)), (
            "words were cut up"
        )
        id_of = {word: int(word_ids[0]) for word, word_ids in zip(distinct, ids)}
        return np.fromiter(map(id_of.__getitem__, words), np.int64, len(words))

    def part(self, text: str) -> str:
        """The text with a space wherever this tokenizer starts a new word."""
        before = self._backend.pre_tokenizer
        return text if before is None else " ".join(piece for piece, _ in before.pre_tokenize_str(text))

    def encode_with_library(self, text: str) -> NDArray[np.int64]:
        """The reference for `encode`, which uses it for words and BPE."""
        text.encode()  # refuse unpaired surrogates here, where the reason is known
        return self._with_library([text])[0]

    def _with_library(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        parts = [[text] if len(text) <= _SLICE else list(slices(text, length=_SLICE)) for text in texts]
        ids: list[NDArray[np.int64]] = []
        for group in _grouped(part for several in parts for part in several):
            try:
                encoded = self._backend.encode_batch_fast(group, add_special_tokens=False)
            except BaseException as error:
                if _is_ours(error):
                    raise
                raise UserError(f"the tokenizer cannot write this text: {error}") from None
            ids += [np.array(part.ids, dtype=np.int64) for part in encoded]
        encoded_parts = iter(ids)
        return [np.concatenate([_NOTHING, *islice(encoded_parts, len(several))]) for several in parts]

    def unknown_share(self, several: Sequence[NDArray[np.int64]]) -> float:
        """Share of all these tokens that are not in the vocabulary."""
        unknown = sum(int((ids == self.unknown_id).sum()) for ids in several) if self.unknown_id is not None else 0
        return unknown / max(1, sum(map(len, several)))

    def unknown_in(self, text: str) -> list[str]:
        """The pieces of a short text that are not in the vocabulary, each once, in order."""
        if self.unknown_id is None:
            return []
        encoded = self._backend.encode(text, add_special_tokens=False)
        pieces = zip(encoded.ids, encoded.offsets, strict=True)
        return list(dict.fromkeys(text[start:end] for i, (start, end) in pieces if i == self.unknown_id))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without special tokens."""
        kept = [i for i in map(int, ids) if i != self.end_id]
        text: str = self._backend.decode(kept, skip_special_tokens=True)
        return text

    @cached_property
    def pieces(self) -> list[str] | None:
        """The text of each token, if a text is these one after the other: where each character is a token."""
        if self._lookup is None or self._lookup.encoding == "utf-8":
            return None
        return [self.decode([i]) for i in range(self.vocab)]

    def save(self, path: Path) -> None:
        write(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a tokenizer.json, ours or any other; nothing in it is executed."""
        try:
            text = read_small(path, largest=_LARGEST_FILE)
            _refuse_growth(dict(from_json(text)))
            return cls(tokenizers.Tokenizer.from_str(text))
        except OSError as error:
            raise UserError(f"tokenizer {str(path)!r} cannot be read: {error.strerror or error}") from None
        except BaseException as error:
            if _is_ours(error):
                raise
            raise UserError(
                f"{str(path)!r} is not a valid tokenizer.json: {error}",
                fix=f"it is damaged or made for another library; name another one, or {', '.join(TOKENIZERS)}",
            ) from None

    def to_json(self, *, begin: str | None = None) -> str:
        """The file's text. With `begin`, a tokenizer that puts nothing before a text puts this special token there."""
        text: str = self._backend.to_str()
        if begin is None or self._backend.encode("", add_special_tokens=True).ids:
            return text
        table = from_json(text)
        first = {"SpecialToken": {"id": begin, "type_id": 0}}
        one, other = ({"Sequence": {"id": name, "type_id": at}} for at, name in enumerate("AB"))
        template = {
            "type": "TemplateProcessing",
            "single": [first, one],
            "pair": [first, one, other],
            "special_tokens": {begin: {"id": begin, "ids": [self.begin_id(begin)], "tokens": [begin]}},
        }
        own = table["post_processor"]
        table["post_processor"] = {"type": "Sequence", "processors": [own, template]} if own else template
        return json.dumps(table, indent=2, ensure_ascii=False)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def _is_ours(error: BaseException) -> bool:
    """Whether the error is not from the library, whose panics are not `Exception`s."""
    return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError)


def _refuse_growth(table: dict[str, Any]) -> None:
    """Refuse rules that multiply text: forty that double it make a terabyte of one letter."""
    growth = 1
    waiting = [table.get(part) for part in ("normalizer", "pre_tokenizer", "decoder")]
    while waiting:
        rule = waiting.pop()
        if isinstance(rule, list):
            waiting += rule
        elif isinstance(rule, dict):
            waiting += [inner for inner in rule.values() if isinstance(inner, list | dict)]
            if rule.get("type") == "Replace":
                of, by = rule.get("pattern"), str(rule.get("content", ""))
                replaced = len(str(of["String"])) if isinstance(of, dict) and "String" in of else 1
                growth *= max(1, -(-len(by) // max(1, replaced)))
            if growth > _LARGEST_GROWTH:
                raise ValueError(f"its rules make more than {_LARGEST_GROWTH} characters of one")


def _grouped(parts: Iterable[str]) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for part in parts:
        group.append(part)
        size += len(part)
        if size >= _GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def _end_name(backend: tokenizers.Tokenizer) -> str:
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    return next((name for name in _END_NAMES if name in special), END)


def _unknown_id(backend: tokenizers.Tokenizer) -> int | None:
    model: dict[str, Any] = from_json(backend.to_str())["model"]
    if isinstance(model.get("unk_id"), int):
        return int(model["unk_id"])
    unknown_id: int | None = backend.token_to_id(model["unk_token"]) if model.get("unk_token") else None
    return unknown_id


def _lookup(backend: tokenizers.Tokenizer) -> _Lookup | None:
    """A lookup table, if the tokenizer equals one of our char or byte tokenizers (compared by rebuilding it)."""
    made = backend.to_str()
    if made == byte_backend().to_str():
        return _Lookup("utf-8", np.dtype(np.uint8), np.arange(256))
    vocab: dict[str, int] = backend.get_vocab()
    if made != char_backend(vocab).to_str():
        return None
    table = np.full(NUM_CODE_POINTS, _unknown_id(backend), dtype=np.int64)
    for token, i in vocab.items():
        if len(token) == 1:
            table[ord(token)] = i
    return _Lookup("utf-32-le", np.dtype("<u4"), table)

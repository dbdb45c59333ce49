"""Exported runs without PyTorch: this one file and NumPy; faster with onnxruntime, and with tokenizers.

    from statewise import runtime

    run = runtime.load("exported/lstm")
    print(run.generate("ROMEO:", tokens=200))

`statewise export` copies this file into every folder that it writes, so that the folder runs by itself:
`python exported/lstm/runtime.py --prompt "ROMEO:"`. It imports nothing else of statewise. The text is that of
`statewise generate` with the same seed, as far as both compute the same logits: they agree to float32 rounding.

V vocabulary, T time, K classes.
"""

import argparse
import json
import math
import re
import struct
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FORMAT = 2  # of the folder
STREAM = 1 << 40  # positions of one seed; those of the next seed follow
Array = NDArray[Any]
Arrays = dict[str, Array]

_COLDEST = 1e-30
_ODD = -0x61C8864680B583EB  # 2^64 over the golden ratio
_INCOMPLETE = "\ufffd"
_TAIL = 8  # tokens remembered for the decoder of text
_AFTER = "after."
_KINDS = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32, "BOOL": np.bool_}


class Sampling(NamedTuple):
    """How the next token is drawn, as `statewise.Sampling`; `temperature=0` takes the most likely one."""

    repetition: float = 1.0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int = 0

    def check(self) -> None:
        """Refuse what is no probability and no number."""
        for name, value, valid, expected in (
            ("repetition", self.repetition, 0 < self.repetition < 1e6, "a positive number"),
            ("temperature", self.temperature, 0 <= self.temperature < 1e6, "0 (greedy) or a positive number"),
            ("top_k", self.top_k, self.top_k is None or self.top_k >= 1, "at least 1"),
            ("top_p", self.top_p, self.top_p is None or 0 < self.top_p <= 1, "above 0, at most 1"),
            ("min_p", self.min_p, self.min_p is None or 0 <= self.min_p <= 1, "between 0 and 1"),
            ("seed", self.seed, 0 <= self.seed < 2**63, "between 0 and 2^63 - 1"),
        ):
            if not valid:
                raise ValueError(f"{name} = {value} is not valid, expected {expected}")


class Continuation(NamedTuple):
    """Everything a text needs to be continued exactly. Its file is the one that `statewise generate` saves, too."""

    state: Arrays
    token: int  # generated but not yet read
    position: int
    seen_V: Array
    tail_K: Array


# ------------------------------------------------------------------ text


class TextStream:
    """Tokens to text, one by one: never half a character, never a part of a stop string.

    `before` are tokens whose text was already shown (the prompt's, or an earlier session's): they give
    the decoder its context and are not shown again. `pieces` is the text of each token, where no token's depends on
    its neighbours: then nothing is decoded.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        *,
        before: Sequence[int] = (),
        stop: Sequence[str] = (),
        pieces: Sequence[str] | None = None,
    ) -> None:
        self._decode, self._pieces = decode, pieces
        self._tokens = list(before)
        # Characters of the window's text that were already handled.
        self._shown = 0 if pieces is not None else len(_complete(decode(self._tokens)))
        self._stop = [text for text in stop if text]
        self._pending = ""
        self.stopped = False

    def feed(self, token: int) -> str:
        """The text that this token makes certain; empty once a stop string was met."""
        if self.stopped:
            return ""
        if self._pieces is not None:
            if not self._stop:
                return self._pieces[token]
            self._pending += self._pieces[token]
            return self._release()
        self._tokens.append(token)
        text = _complete(self._decode(self._tokens))
        self._pending += text[self._shown :]
        self._shown = max(self._shown, len(text))
        if len(self._tokens) > 4 * _TAIL:
            # The window stays short: distant tokens cannot change how the next one decodes.
            self._tokens = self._tokens[-2 * _TAIL :]
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


class _Tokenizer:
    """The run's own tokenizer.json, with the same ids as in training."""

    def __init__(self, path: Path, *, end_id: int | None) -> None:
        self.end_id = end_id
        self._encode: Callable[[str], list[int]]
        self._decode: Callable[[list[int]], str]
        try:
            text = path.read_text(encoding="utf-8")
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{str(path)!r} is damaged: {error}; export the run again") from None
        try:
            import tokenizers
        except ModuleNotFoundError:
            self._encode, self._decode = _without_library(table)
            return
        try:
            backend = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library has no kind of its own
            raise ValueError(f"{str(path)!r} is damaged: {error}; export the run again") from None
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        self._encode = lambda text: backend.encode(text, add_special_tokens=False).ids
        self._decode = lambda ids: backend.decode(ids, skip_special_tokens=True)

    def encode(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise ValueError(f"this run reads texts; got {type(text).__name__}")
        return self._encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._decode([int(i) for i in ids if i != self.end_id])


# Scripts without spaces: by the names that a tokenizer.json has for them, and as ranges.
_SCRIPT_NAMES = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_SCRIPTS = (
    "\u0e01-\u0e3a\u0e40-\u0edf\u1000-\u109f\u1780-\u17f9\u19e0-\u19ff\u2e80-\u2fd5\u3005\u3007\u3021-\u3029"
    "\u3038-\u303b\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fd-\u30ff\u31f0-\u31ff\u32d0-\u32fe\u3300-\u3357"
    "\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9fe\uaa60-\uaa7f\uf900-\ufad9\uff66-\uff6f\uff71-\uff9d"
    "\U000116d0-\U000116e3\U00016fe2-\U00016fe3\U00016ff0-\U00016ff1\U0001aff0-\U0001b167\U0001f200\U00020000-\U000323af"
)
_UNSPACED = rf"[{_SCRIPTS}\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]"
# Words, in a text where each character beyond ASCII was replaced by a sign of its class (see `_Classes`).
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?[a-zA-Z]+| ?[0-9\x02]+| ?[^\sa-zA-Z0-9\x02]+|\s+(?!\S)|\s+"
_SPACED = r"\n|<(?=end>)|(?:[^\s<]|<(?!end>))+"
_PUNCTUATED = r"[\x03\x04]|[a-zA-Z0-9_\x01]+|[^\sa-zA-Z0-9_\x01\x03]+|\n"


class _Classes(dict[int, str]):
    """A sign for each character: itself in ASCII, or of its class. Python's `re` knows no Unicode categories."""

    def __init__(self, script: str = "(?!)") -> None:
        self._script = re.compile(script)

    def __missing__(self, code: int) -> str:
        letter, category = chr(code), unicodedata.category(chr(code))
        if code < 128:
            sign = letter if code > 4 else "!"
        elif category[0] == "L":
            sign = "a"
        elif category in ("Nd", "Nl"):
            sign = "0"
        elif category == "No":
            sign = "\x02"
        elif category[0] == "M" or category == "Pc" or re.match("[Ⓐ-ⓩ🄰-🅉🅐-🅩🅰-🆉]", letter):
            sign = "\x01"
        else:
            sign = "\t" if category[0] == "Z" or letter == "\x85" else "!"
        if self._script.match(letter):
            sign = "\x03" if sign in "a0\x01" else "\x04"
        self[code] = sign
        return sign


def _cutter(words: str, classes: _Classes) -> Callable[[str], Iterator[str]]:
    pattern = re.compile(words, re.ASCII)
    return lambda text: (text[match.start() : match.end()] for match in pattern.finditer(text.translate(classes)))


def _without_library(table: Mapping[str, Any]) -> tuple[Callable[[str], list[int]], Callable[[list[int]], str]]:
    """A tokenizer of the kinds that we train; of characters newer than Python, words may be cut elsewhere."""
    model, rules, added = table["model"], table.get("normalizer") or {}, table.get("added_tokens", ())
    ids, special = model["vocab"], {token["id"] for token in added if token["special"]}
    if not all(type(i) is int for i in ids.values()):
        raise TypeError("ids of the tokenizer are not whole numbers")
    token_of, unknown = {i: token for token, i in ids.items()}, ids.get(model.get("unk_token"))
    odd = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges")
    known = len(special) == len(added) and not any(model.get(option) for option in odd)
    lower = whole = False
    for rule in rules.get("normalizers", [rules] if rules else []):
        match rule:
            case {"type": "Lowercase"}:
                lower = True
            case {"type": "Replace", "pattern": {"Regex": "^<end>$"}, "content": " <end>"}:
                whole = True
            case _:
                known = False
    pieces: Callable[[str], Iterable[str]]
    joined: Callable[[list[str]], str] = _spaced
    match known and model["type"], table.get("pre_tokenizer"):
        case "BPE", None if not model.get("merges"):
            pieces, joined = list, "".join
        case "BPE", {"type": "ByteLevel", "add_prefix_space": False, "use_regex": regex}:
            pieces, joined = _byte_pairs(model.get("merges", ()), regex=regex)
        case "WordLevel", None:
            pieces = lambda text: [" <end>" if whole and text == "<end>" else text] if text else []  # noqa: E731
        case "WordLevel", {
            "type": "Sequence",
            "pretokenizers": [
                {"pattern": {"String": "\n"}}, {"pattern": {"Regex": r"[^\S\n]+"}}, {"pattern": {"Regex": "<(?=end>)"}},
            ],
        }:  # fmt: skip
            pieces, joined = _cutter(_SPACED, _Classes()), _lined
        case "WordLevel", {"type": "Split", "pattern": {"Regex": regex}, "invert": True} if (
            regex.replace(_SCRIPT_NAMES, "") == r"[]|[\w&&[^]]+|[^\w\s]+|\n"
        ):
            pieces = _cutter(_PUNCTUATED, _Classes(f"[{_SCRIPTS}]"))
            joined = lambda tokens: re.sub(f"(?<={_UNSPACED}) (?={_UNSPACED})", "", _lined(tokens))  # noqa: E731
        case _:
            raise ValueError("this tokenizer needs the library tokenizers; install it: pip install tokenizers")

    def encode(text: str) -> list[int]:
        text = "".join(map(str.lower, text)) if lower else text  # each letter alone, as the library
        return [i for i in (ids.get(piece, unknown) for piece in pieces(text)) if i is not None]

    return encode, lambda given: joined([token_of[i] for i in given if i in token_of and i not in special])


def _spaced(tokens: list[str]) -> str:
    return "".join(tokens[:1]) + "".join(token[1:] if token[:1] == " " else f" {token}" for token in tokens[1:])


def _lined(tokens: list[str]) -> str:
    return _spaced(tokens).replace(" \n", "\n").replace("\n ", "\n")


def _byte_pairs(merges: Iterable[Any], *, regex: bool) -> tuple[Callable[[str], Iterator[str]], Callable[..., str]]:
    """Byte-level BPE: the pairs that were merged first in training are merged first. Without merges, bytes."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    letters = [chr(byte if byte in printable else next(others)) for byte in range(256)]
    byte_of = {letter: byte for byte, letter in enumerate(letters)}
    rank = {tuple(pair.split(" ") if isinstance(pair, str) else pair): n for n, pair in enumerate(merges)}
    cut = _cutter(_GPT2, _Classes()) if regex else lambda text: iter([text])

    @lru_cache(1 << 16)
    def merged(word: str) -> list[str]:
        parts = [letters[byte] for byte in word.encode()]
        while rank and len(parts) > 1:
            best = min(pairwise(parts), key=lambda pair: rank.get(pair, len(rank)))
            if best not in rank:
                break
            shorter: list[str] = []
            for part in parts:
                # A part that was just made is longer than the first of the pair, so it is not merged again.
                if shorter and (shorter[-1], part) == best:
                    shorter[-1] += part
                else:
                    shorter.append(part)
            parts = shorter
        return parts

    def text_of(tokens: list[str]) -> str:
        known = (letter for token in tokens for letter in token)
        return bytes(byte_of[letter] for letter in known if letter in byte_of).decode(errors="replace")

    return lambda text: (part for word in cut(text) for part in merged(word)), text_of


# ------------------------------------------------------------------ choosing a token


def random_bits(seed: Any, position: Any) -> Any:
    """53 random bits for each seed and position: a function of the two alone (SplitMix64, Steele et al. 2014).

    Both are int64, arrays of NumPy or tensors of PyTorch on any device: the numbers are the same. Positions from
    `STREAM` on belong to the next seed: for several samples of one prompt.
    """
    state = _mixed((seed + (position // STREAM)) * _ODD + _ODD) + (position % STREAM + 1) * _ODD
    return _mixed(state) >> 11 & (1 << 53) - 1


def future_bits(seed: Any, row: Any, path: Any, place: Any) -> Any:
    """The same for sampled futures of many series: each row and path has a seed of its own, made of `seed`."""
    return random_bits(random_bits(seed, row * STREAM + path), place)


def _mixed(z: Any) -> Any:
    """A permutation of all int64 that looks like chance. Products wrap; shifts bring in zeros."""
    z = (z ^ (z >> 30 & (1 << 34) - 1)) * -0x40A7B892E31B1A47
    z = (z ^ (z >> 27 & (1 << 37) - 1)) * -0x6B2FB644ECCEEE15
    return z ^ (z >> 31 & (1 << 33) - 1)


def choose(logits_V: Array, *, seen_V: Array, position: int, sampling: Sampling) -> int:
    """One token, by the rules of `statewise.decoding`: each filter removes what it must, then one draw."""
    logits_V = logits_V.astype(np.float32)
    if sampling.repetition != 1.0:
        penalty = np.float32(sampling.repetition)
        logits_V = np.where(seen_V, np.where(logits_V > 0, logits_V / penalty, logits_V * penalty), logits_V)
    if not np.isfinite(logits_V.max()):
        raise ValueError("the model's outputs are not numbers: its graphs are broken; export it again")
    if sampling.temperature == 0:
        return int(logits_V.argmax())
    logits_V = (logits_V - logits_V.max()) / np.float32(max(sampling.temperature, _COLDEST))
    if sampling.top_k is not None:
        out_V = np.ones(logits_V.shape, dtype=bool)
        out_V[np.argsort(-logits_V, kind="stable")[: sampling.top_k]] = False
        logits_V = np.where(out_V, np.float32(-np.inf), logits_V)
    if sampling.top_p is not None:
        order_V = np.argsort(-logits_V, kind="stable")
        p_V = _softmax(logits_V[order_V].astype(np.float64))
        outside_V = (p_V.cumsum() - p_V) >= sampling.top_p
        outside_V[0] = False
        logits_V = logits_V.copy()
        logits_V[order_V[outside_V]] = -np.inf
    if sampling.min_p is not None:
        p_V = _softmax(logits_V)
        logits_V = np.where(p_V < np.float32(sampling.min_p) * p_V.max(), np.float32(-np.inf), logits_V)
    cumulative_V = _softmax(logits_V.astype(np.float64)).cumsum()
    (below,) = random_bits(np.array([sampling.seed]), np.array([position])) * 2.0**-53
    return min(int((cumulative_V <= below * cumulative_V[-1]).sum()), len(logits_V) - 1)


def _softmax(logits: Array) -> Array:
    e = np.exp(logits - logits.max(-1, keepdims=True))
    p: Array = e / e.sum(-1, keepdims=True)
    return p


# ------------------------------------------------------------------ files


def read_safetensors(path: Path) -> tuple[Arrays, dict[str, str]]:
    """The arrays and the metadata of a safetensors file."""
    content = path.read_bytes()
    try:
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + size])
        metadata = header.pop("__metadata__", {})
        arrays = {}
        for name, about in header.items():
            begin, end = (8 + size + offset for offset in about["data_offsets"])
            kind = np.dtype(_KINDS[about["dtype"]])
            arrays[name] = np.frombuffer(content[begin:end], dtype=kind).reshape(about["shape"])
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is not a saved state: {error}") from None
    return arrays, metadata


def write_safetensors(path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    names = {np.dtype(kind): name for name, kind in _KINDS.items()}
    parts = {name: (names[array.dtype], array.shape, np.ascontiguousarray(array)) for name, array in arrays.items()}
    path.write_bytes(safetensors_content(parts, metadata))


def safetensors_content(parts: Mapping[str, tuple[str, Sequence[int], Array]], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file: for each name the type as the format calls it, the shape, and an array of the numbers."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    begin = 0
    for name, (kind, shape, array) in parts.items():
        end = begin + array.nbytes
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *(array.data for _, _, array in parts.values())])


# ------------------------------------------------------------------ graphs


class Graph:
    """An ONNX file: arrays by name to arrays by name, in onnxruntime, or without it in NumPy, which is slower."""

    def __init__(self, path: Path, *, threads: int) -> None:
        if not path.is_file():
            raise ValueError(f"there is no graph {str(path)!r}; export the run again")
        self._path = path
        try:
            self._run = _opened(path, threads=threads)
        except NotImplementedError as error:
            raise ValueError(f"{str(path)!r} needs onnxruntime: {error}; install it: pip install onnxruntime") from None
        except Exception as error:  # of a damaged file any; onnxruntime has a kind for each of its codes
            raise ValueError(f"{str(path)!r} is damaged: {error!r}; export the run again") from error

    def __call__(self, feed: Mapping[str, Array]) -> Arrays:
        try:
            return self._run(feed)
        except Exception as error:
            raise ValueError(f"{str(self._path)!r} cannot be computed: {error!r}; export the run again") from error


def _opened(path: Path, *, threads: int) -> Callable[[Mapping[str, Array]], Arrays]:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return interpreted(path.read_bytes())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(None, dict(feed))))


def interpreted(model: bytes) -> Callable[[Mapping[str, Array]], Arrays]:
    """An ONNX model in NumPy: the operators that exported graphs have, each by its definition."""
    (graph,) = _message(model)[7]
    program = _Program(graph)
    return lambda feed: program(feed, {})


def _message(data: bytes) -> dict[int, list[Any]]:
    """The fields of a protobuf message by their numbers; what is packed or nested stays bytes."""
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value: Any
        match key & 7:
            case 0:
                value, at = _varint(data, at)
            case 1:
                value, at = data[at : at + 8], at + 8
            case 2:
                size, at = _varint(data, at)
                if not 0 <= size <= len(data) - at:
                    raise ValueError(f"a field of {size} bytes ends outside of the file")
                value, at = data[at : at + size], at + size
            case 5:
                value, at = data[at : at + 4], at + 4
            case kind:
                raise ValueError(f"a field of kind {kind}")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value - (1 << 64) if value >> 63 else value, at
    raise ValueError("a number of more than ten bytes")


def _whole_numbers(parts: Sequence[Any]) -> list[int]:
    """A repeated number, packed or not."""
    values = []
    for part in parts:
        at = 0
        while isinstance(part, bytes) and at < len(part):
            value, at = _varint(part, at)
            values.append(value)
        if isinstance(part, int):
            values.append(part)
    return values


_TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64, 9: np.bool_, 11: np.float64}
_PLACES = {1: (4, "<f4"), 11: (10, "<f8")}  # of numbers that are no bytes, with their format


def _tensor(data: bytes) -> Array:
    fields = _message(data)
    (kind,) = fields[2]
    shape = _whole_numbers(fields.get(1, ()))
    if 9 in fields:
        return np.frombuffer(fields[9][0], dtype=_TYPES[kind]).reshape(shape)
    if kind in _PLACES:
        place, form = _PLACES[kind]
        return np.frombuffer(b"".join(fields.get(place, ())), dtype=form).reshape(shape)
    return np.array(_whole_numbers(fields.get(7 if kind == 7 else 5, ())), dtype=_TYPES[kind]).reshape(shape)


def _attribute(fields: Mapping[int, list[Any]]) -> Any:
    (kind,) = fields[20]
    match kind:
        case 1:
            return struct.unpack("<f", fields[2][0])[0]
        case 2:
            return fields.get(3, [0])[0]
        case 3:
            return fields[4][0].decode()
        case 4:
            return _tensor(fields[5][0])
        case 5:
            return _Program(fields[6][0])
        case 6:
            return np.frombuffer(b"".join(fields.get(7, ())), dtype="<f4").tolist()
        case 7:
            return _whole_numbers(fields.get(8, ()))
    raise NotImplementedError(f"an attribute of kind {kind}")


class _Program:
    """The nodes of a graph in their order."""

    def __init__(self, data: bytes) -> None:
        graph = _message(data)
        self.constants = {_message(part)[8][0].decode(): _tensor(part) for part in graph.get(5, ())}
        self.inputs, self.outputs = ([_message(part)[1][0].decode() for part in graph.get(n, ())] for n in (11, 12))
        self.nodes = []
        for part in graph.get(1, ()):
            node = _message(part)
            attributes = [_message(attribute) for attribute in node.get(5, ())]
            (kind,) = node[4]
            if kind.decode() not in _OPERATORS:
                raise NotImplementedError(f"the operator {kind.decode()}")
            self.nodes.append(
                (
                    _OPERATORS[kind.decode()],
                    [name.decode() for name in node.get(1, ())],
                    [name.decode() for name in node.get(2, ())],
                    {attribute[1][0].decode(): _attribute(attribute) for attribute in attributes},
                )
            )

    def __call__(self, feed: Mapping[str, Array], outside: Mapping[str, Array]) -> Arrays:
        """`outside`: what a loop's body sees of the graph around it."""
        values: dict[str, Any] = {"": None, **outside, **self.constants, **feed}
        for operator, inputs, outputs, attributes in self.nodes:
            if operator is _scan:
                attributes = {**attributes, "outside": values}
            with np.errstate(all="ignore"):  # as onnxruntime: what is divided by 0 is infinite
                result = operator(*(values[name] for name in inputs), **attributes)
            values.update(zip(outputs, result if isinstance(result, list) else [result]))
        return {name: values[name] for name in self.outputs}


def _scan(
    *given: Array, body: _Program, num_scan_inputs: int, outside: Mapping[str, Array], **more: Any
) -> list[Array]:
    held = len(given) - num_scan_inputs
    state = list(given[:held])
    axes = more.get("scan_input_axes") or [0] * num_scan_inputs
    read = [np.moveaxis(array, axis, 0) for array, axis in zip(given[held:], axes)]
    every: list[list[Array]] = []
    for step in range(len(read[0])):
        after = body(dict(zip(body.inputs, [*state, *(array[step] for array in read)])), outside)
        values = [after[name] for name in body.outputs]
        state, seen = values[:held], values[held:]
        every.append(seen)
    axes = more.get("scan_output_axes") or [0] * (len(body.outputs) - held)
    return [*state, *(np.stack(steps, axis) for steps, axis in zip(zip(*every), axes))]


def _reduced(function: Any) -> Callable[..., Array]:
    def reduce(x: Array, axes: Array | None = None, *, keepdims: int = 1, **more: Any) -> Array:
        chosen = None if axes is None else tuple(axes.tolist())
        if chosen == () or (chosen is None and more.get("noop_with_empty_axes")):
            return x
        reduced: Array = np.asarray(function(x, axis=chosen, keepdims=bool(keepdims)))
        return reduced.astype(x.dtype)

    return reduce


def _of(function: Any) -> Callable[..., Array]:
    """Of as many arrays as there are inputs, in the type of the first."""

    def apply(*given: Array) -> Array:
        result: Array = np.asarray(function(*given))
        return result if result.dtype == np.bool_ else result.astype(given[0].dtype, copy=False)

    return apply


def _cast(x: Array, *, to: int, **_: Any) -> Array:
    return x.astype(_TYPES[to])


def _divide(a: Array, b: Array) -> Array:
    return a / b if a.dtype.kind == "f" else np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


_error_function = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    return np.asarray(_error_function(x.astype(np.float64)), dtype=np.float64)


def _gelu(x: Array, *, approximate: str = "none") -> Array:
    inner = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)) if approximate == "tanh" else _erf(x / math.sqrt(2))
    return np.asarray(0.5 * x * (1 + inner), dtype=x.dtype)


def _normalised(
    x: Array,
    gain: Array,
    bias: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    **_: Any,
) -> Array:
    axes = tuple(range(axis % x.ndim, x.ndim))
    off = x - x.mean(axes, keepdims=True)
    y = off / np.sqrt((off * off).mean(axes, keepdims=True) + np.float32(epsilon)) * gain
    return np.asarray(y if bias is None else y + bias, dtype=x.dtype)


def _gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    y = np.float32(alpha) * ((a.T if transA else a) @ (b.T if transB else b))
    return (y if c is None else y + np.float32(beta) * c).astype(a.dtype)


def _slice(x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
    chosen = [slice(None)] * x.ndim
    strides = [1] * len(starts) if steps is None else steps.tolist()
    for axis, begin, end, step in zip(
        range(len(starts)) if axes is None else axes.tolist(), starts.tolist(), ends.tolist(), strides
    ):
        last = None if step < 0 and end < -x.shape[axis] else end
        chosen[axis] = slice(begin, last, step)
    return x[tuple(chosen)]


def _split(x: Array, sizes: Array | None = None, *, axis: int = 0, num_outputs: int = 1) -> list[Array]:
    if sizes is None:
        each = -(-x.shape[axis] // num_outputs)
        return np.split(x, range(each, x.shape[axis], each), axis)
    return np.split(x, sizes.cumsum()[:-1].tolist(), axis)


def _reshape(x: Array, shape: Array, *, allowzero: int = 0) -> Array:
    sizes = shape.tolist()
    return x.reshape([x.shape[at] if size == 0 and not allowzero else size for at, size in enumerate(sizes)])


def _scattered(x: Array, index: Array, updates: Array, *, reduction: str = "none") -> Array:
    return _put(x, tuple(np.moveaxis(index, -1, 0)), updates, reduction)


def _scattered_along(x: Array, index: Array, updates: Array, *, axis: int = 0, reduction: str = "none") -> Array:
    places: list[Array] = list(np.indices(index.shape))
    places[axis] = index
    return _put(x, tuple(places), updates, reduction)


def _gathered(x: Array, index: Array, *, batch_dims: int = 0) -> Array:
    if batch_dims:
        raise NotImplementedError("GatherND of batches")
    return np.asarray(x[tuple(np.moveaxis(index, -1, 0))])


def _put(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    put = x.copy()
    if reduction == "none":
        put[places] = updates
    else:
        {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction].at(put, places, updates)
    return put


def _padded(
    x: Array,
    pads: Array,
    value: Array | None = None,
    axes: Array | None = None,
    *,
    mode: str = "constant",
) -> Array:
    chosen = list(range(x.ndim)) if axes is None else axes.tolist()
    each = [(0, 0)] * x.ndim
    for at, axis in enumerate(chosen):
        each[axis] = (int(pads[at]), int(pads[at + len(chosen)]))
    if mode == "constant":
        return np.pad(x, each, constant_values=0 if value is None else value.item())
    return np.pad(x, each, mode=mode)  # type: ignore[call-overload,no-any-return]  # ONNX has NumPy's names


def _clipped(x: Array, least: Array | None = None, most: Array | None = None) -> Array:
    return np.clip(x, least, most).astype(x.dtype)


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


_ZERO = np.zeros(1, dtype=np.float32)
_OPERATORS: dict[str, Callable[..., Any]] = {
    **{
        name: _of(function)
        for name, function in {
            "Abs": np.abs, "Add": np.add, "And": np.logical_and, "Cos": np.cos, "Div": _divide,
            "Elu": lambda x: np.where(x > 0, x, np.expm1(x)),
            "Equal": np.equal, "Erf": _erf, "Exp": np.exp, "Greater": np.greater,
            "GreaterOrEqual": np.greater_equal, "Identity": np.asarray, "IsNaN": np.isnan,
            "Less": np.less, "LessOrEqual": np.less_equal, "Log": np.log, "MatMul": np.matmul, "Mul": np.multiply,
            "Neg": np.negative, "Not": np.logical_not, "Or": np.logical_or, "Pow": np.power,
            "Reciprocal": np.reciprocal, "Relu": lambda x: np.maximum(x, 0),
            "Sigmoid": lambda x: np.exp(-np.logaddexp(0, -x)), "Sin": np.sin, "Softplus": _softplus,
            "Sqrt": np.sqrt, "Sub": np.subtract, "Tanh": np.tanh,
            "Max": lambda *x: reduce(np.maximum, x), "Min": lambda *x: reduce(np.minimum, x),
        }.items()
    },
    **{
        f"Reduce{name}": _reduced(function)
        for name, function in {"Sum": np.sum, "Mean": np.mean, "Max": np.max, "Min": np.min}.items()
    },
    "Cast": _cast, "Clip": _clipped, "Gelu": _gelu,
    "Gemm": _gemm, "LayerNormalization": _normalised, "Pad": _padded, "Reshape": _reshape, "Scan": _scan,
    "ScatterElements": _scattered_along, "ScatterND": _scattered, "Slice": _slice, "Split": _split,
    "Concat": lambda *x, axis: np.concatenate(x, axis),
    "Constant": lambda **value: next(np.asarray(constant) for constant in value.values()),
    "ConstantOfShape": lambda shape, *, value=_ZERO: np.full(shape.tolist(), value[0]),
    "Expand": lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape.tolist()))),
    "Gather": lambda x, at, *, axis=0: np.take(x, at, axis),
    "GatherElements": lambda x, at, *, axis=0: np.take_along_axis(x, at, axis),
    "GatherND": _gathered,
    "Range": lambda begin, end, step: np.arange(begin, end, step, dtype=begin.dtype),
    "Shape": lambda x, *, start=0, end=None: np.array(x.shape[start:end], dtype=np.int64),
    "LogSoftmax": lambda x, *, axis=-1: x - np.logaddexp.reduce(x, axis, keepdims=True),
    "Softmax": lambda x, *, axis=-1: np.moveaxis(_softmax(np.moveaxis(x, axis, -1)), -1, axis),
    "Squeeze": lambda x, axes=None: np.squeeze(x, None if axes is None else tuple(axes.tolist())),
    "Transpose": lambda x, *, perm=None: np.transpose(x, perm),
    "Trilu": lambda x, k=0, *, upper=1: (np.triu if upper else np.tril)(x, int(k)),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes.tolist())),
    "Where": lambda which, x, y: np.where(which, x, y),
}  # fmt: skip


# ------------------------------------------------------------------ runs


class LanguageModel:
    """An exported language model: `generate`, `stream`, and states that are saved and continued from."""

    def __init__(self, folder: Path, about: Mapping[str, Any], *, int8: bool, threads: int) -> None:
        suffix = ".int8.onnx" if int8 else ".onnx"
        settings = about["settings"]
        self.path = folder
        self.vocab, self.end_id, self.context = settings["vocab"], settings["end_id"], settings["context"]
        self._never: list[int] = settings["never"]
        self._reverse: bool = settings["reverse"]
        self._step = Graph(folder / f"step{suffix}", threads=threads)
        self._sequence_file, self._threads = folder / f"sequence{suffix}", threads
        self._sequence: Graph | None = None  # opened for the first prompt
        self.tokenizer = _Tokenizer(folder / "tokenizer.json", end_id=self.end_id)
        self._start, self._metadata = read_safetensors(folder / "start.safetensors")
        numbers = [self.vocab, *self._never, *(size for size in (self.end_id, self.context) if size is not None)]
        if not all(type(number) is int for number in numbers) or any(not 0 <= i < self.vocab for i in self._never):
            raise TypeError(f"sizes and tokens are {numbers}")
        self._continuation(self._start)

    def begin(self, prompt: str = "") -> Continuation:
        """Read a prompt as the start of a document."""
        return self.read(self._continuation(self._start), prompt)

    def _continuation(self, arrays: Mapping[str, Array]) -> Continuation:
        state = {name.removeprefix("state."): array for name, array in arrays.items() if name.startswith("state.")}
        token, position = int(arrays["token_B"][0]), int(arrays["position_B"][0])
        tail_K: Array = arrays["tail_BK"][0]
        if not 0 <= token < self.vocab or not ((tail_K >= -1) & (tail_K < self.vocab)).all():
            raise ValueError(f"a saved state holds tokens that are not in the vocabulary of {self.vocab}")
        if not 0 <= position < STREAM:
            raise ValueError(f"a saved state has position {position}, expected 0 or more")
        return Continuation(state, token, position, arrays["seen_BV"][0], tail_K)

    def read(self, at: Continuation, text: str) -> Continuation:
        """Read more text from a continuation."""
        ids = self.tokenizer.encode(text)
        if not ids:
            return at
        if not all(0 <= i < self.vocab for i in ids):
            raise ValueError(f"the tokenizer's ids are outside the vocabulary of {self.vocab}; export the run again")
        if self._reverse:
            ids.reverse()
        _refuse_long(at.position + len(ids), self.context)
        if self._sequence is None:
            self._sequence = Graph(self._sequence_file, threads=self._threads)
        tokens_BT = np.array([[at.token, *ids[:-1]]], dtype=np.int64)
        outputs = self._sequence({"tokens": tokens_BT, **at.state})
        return self._after(at, ids, outputs)

    def _after(self, at: Continuation, ids: Sequence[int], outputs: Arrays) -> Continuation:
        if odd := [name for name in at.state if _AFTER + name not in outputs]:
            raise ValueError(f"the graphs of {str(self.path)!r} have no state {odd[0]!r}; export the run again")
        state = {name: outputs[_AFTER + name] for name in at.state}
        seen_V = at.seen_V.copy()
        seen_V[list(ids)] = True
        tail_K = np.concatenate([at.tail_K, np.array(ids, dtype=np.int64)])[-_TAIL:]
        return Continuation(state, int(ids[-1]), at.position + len(ids), seen_V, tail_K)

    def step(self, at: Continuation, sampling: Sampling) -> Continuation:
        """One more token: `at.token` of what is returned."""
        _refuse_long(at.position + 1, self.context)
        outputs = self._step({"tokens": np.array([at.token], dtype=np.int64), **at.state})
        logits_V = outputs["logits"][0]
        if self._never:
            logits_V[self._never] = -np.inf
        token = choose(logits_V, seen_V=at.seen_V, position=at.position, sampling=sampling)
        return self._after(at, [token], outputs)

    def stream(
        self,
        prompt: str = "",
        *,
        tokens: int = 200,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        start: Continuation | None = None,
    ) -> Iterator[tuple[str, Continuation]]:
        """Generate text piece by piece; each comes with the continuation after it, which can be saved."""
        sampling = _checked(sampling, tokens)
        at = self.begin(prompt) if start is None else self.read(start, prompt)
        text = TextStream(self.tokenizer.decode, before=[int(i) for i in at.tail_K if i >= 0], stop=stop)
        for _ in range(tokens):
            at = self.step(at, sampling)
            if at.token == self.end_id:
                break
            yield text.feed(at.token), at
            if text.stopped:
                return
        yield text.finish(), at

    def generate(
        self, prompt: str = "", *, tokens: int = 200, sampling: Sampling | None = None, stop: Sequence[str] = ()
    ) -> str:
        """The text that follows the prompt, or precedes it for a model that reads in reverse."""
        if not self._reverse:
            return "".join(piece for piece, _ in self.stream(prompt, tokens=tokens, sampling=sampling, stop=stop))
        sampling, at, ids = _checked(sampling, tokens), self.begin(prompt), []
        for _ in range(tokens):
            at = self.step(at, sampling)
            if at.token == self.end_id:
                break
            ids.append(at.token)
        return self.tokenizer.decode(ids[::-1])

    def save_state(self, at: Continuation, path: str | Path) -> None:
        """Write a continuation; `statewise generate --state` reads it, too."""
        arrays = {f"state.{name}": array for name, array in at.state.items()}
        arrays |= {"token_B": np.array([at.token]), "position_B": np.array([at.position])}
        arrays |= {"seen_BV": at.seen_V[None], "tail_BK": at.tail_K[None]}
        write_safetensors(Path(path), arrays, self._metadata)

    def load_state(self, path: str | Path) -> Continuation:
        """Read a continuation that this run saved, here or in `statewise generate --save-state`."""
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"there is no state file {str(path)!r}")
        arrays, metadata = read_safetensors(path)
        for key, what in (("state", "model"), ("weights", "weights")):
            if metadata.get(key) != self._metadata[key]:
                raise ValueError(f"{str(path)!r} is of another {what}; load it with the model that saved it")
        for name, like in self._start.items():
            array = arrays.get(name)
            if array is None or array.dtype != like.dtype or not _fits(array.shape, like.shape):
                raise ValueError(f"{str(path)!r}: {name!r} is missing, or is not {like.dtype} of {list(like.shape)}")
        return self._continuation(arrays)


class Classifier:
    """An exported classifier of texts, or of sequences of values."""

    def __init__(self, folder: Path, about: Mapping[str, Any], *, int8: bool, threads: int) -> None:
        self.path, self._settings = folder, about["settings"]
        self.labels: list[str] = self._settings["labels"]
        self._graph = Graph(folder / "classify.onnx", threads=threads)
        self.tokenizer: _Tokenizer | None = None
        if "end_id" in self._settings:
            self.tokenizer = _Tokenizer(folder / "tokenizer.json", end_id=self._settings["end_id"])

    def predict(self, data: Any) -> Any:
        """The label of a text, or of each in a list.

        Of values, `data` is a list of arrays `[T]` or `[T, C]`; of vectors `[I]`; of grids `[H, W]` or `[H, W, C]`.
        """
        if isinstance(data, str):
            return self.predict([data])[0]
        return [row["label"] for row in self.predict_rows(data)]

    def predict_rows(self, data: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """Each answer with the probability of every label."""
        for number, row in enumerate(data):
            read = self._encoded(row)[: self._settings["longest"]]
            _refuse_long(len(read), self._settings["context"])
            name = "values" if self.tokenizer is None else "tokens"
            size = {"sizes": read.shape[:2]} if read.ndim == 3 else {"lengths": len(read)}
            outputs = self._graph({name: read[None], **{key: np.array([of], np.int64) for key, of in size.items()}})
            p_K = _softmax(outputs["logits"][0].astype(np.float64))
            probabilities = dict(zip(self.labels, p_K.tolist()))
            yield {"row": number, "label": self.labels[int(p_K.argmax())], "probabilities": probabilities}

    def _encoded(self, row: Any) -> Array:
        if self.tokenizer is not None:
            if not isinstance(row, str):
                raise ValueError(f"this run classifies texts; got {type(row).__name__}")
            return np.array(self.tokenizer.encode(row) or [self._settings["end_id"]], dtype=np.int64)
        values, kind = np.asarray(row, dtype=np.float64), self._settings["kind"]
        mean_C, std_C = np.array(self._settings["mean"]), np.array(self._settings["std"])
        axes = 2 if kind == "grid" else 1
        given = values.reshape(1, -1) if kind == "vector" else values[..., None] if values.ndim == axes else values
        if given.ndim != axes + 1 or given.shape[-1] != len(mean_C) or not given.size:
            expected = {"grid": "height, width, ", "vector": ""}.get(kind, "time, ")
            raise ValueError(f"a row has shape {list(values.shape)}, expected [{expected}{len(mean_C)}]")
        scaled: Array = ((given - mean_C) / std_C).astype(np.float32)
        columns = self._settings.get("columns")
        if columns is None:
            return scaled
        if scaled.shape[1] != columns:
            raise ValueError(f"a grid is {scaled.shape[1]} wide, and this model reads rows of {columns}")
        return scaled.reshape(len(scaled), -1)

    def generate(self, prompt: str = "", **_: Any) -> str:
        """The label of the prompt: a text, or the numbers of a vector."""
        if self.tokenizer is None and self._settings["kind"] != "vector":
            raise ValueError(f"this run classifies {self._settings['kind']}, and a prompt is a text; call predict")
        return str(self.predict([_numbers(prompt) if self.tokenizer is None else prompt])[0])


def _numbers(prompt: str) -> Array:
    """Of a text, with blanks, commas or semicolons between them."""
    try:
        return np.array([float(word) for word in prompt.replace(",", " ").replace(";", " ").split()])
    except ValueError:
        raise ValueError(f"this run needs numbers as its prompt; got {prompt[:60]!r}") from None


class Tagger:
    """An exported tagger: a tag for each word of a sentence."""

    def __init__(self, folder: Path, about: Mapping[str, Any], *, int8: bool, threads: int) -> None:
        self.path, self._settings = folder, about["settings"]
        self.tags: list[str] = self._settings["tags"]
        self._graph = Graph(folder / "tag.onnx", threads=threads)
        self._words, self._letters = (
            _Tokenizer(folder / f"{name}.json", end_id=None) for name in ("words", "characters")
        )
        chain = self._settings["chain"]
        self._chain = chain and [np.array(part, dtype=np.float64) for part in chain]  # None becomes NaN
        for part in self._chain or ():
            part[np.isnan(part)] = -np.inf

    def predict(self, data: Sequence[Sequence[str]]) -> list[list[str]]:
        """The tags of each sentence, which is a list of words."""
        return [row["tags"] for row in self.predict_rows(data)]

    def predict_rows(self, data: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
        """Each sentence with its tags and the probability of each."""
        for number, words in enumerate(data):
            if isinstance(words, str):
                raise ValueError(f"a sentence is a list of words; got the text {words!r}")
            parts = -(-len(words) // self._settings["longest"])
            cuts = [len(words) * part // parts for part in range(parts + 1)] if parts else []
            tagged = [self._tagged(words[begin:end]) for begin, end in pairwise(cuts)]
            tags = [self.tags[k] for best_T, _ in tagged for k in best_T]
            p = [value for _, p_T in tagged for value in p_T.tolist()]
            yield {"row": number, "words": list(words), "tags": tags, "probabilities": p}

    def _tagged(self, words: Sequence[str]) -> tuple[list[int], Array]:
        """The best tags, and their probabilities."""
        _refuse_long(len(words), self._settings["context"])
        ids = np.array([[self._words.encode(word)[0] for word in words]], dtype=np.int64)
        feed = {"words": ids, "lengths": np.array([len(words)], dtype=np.int64)}
        longest = self._settings["spelled"]
        if longest is not None:
            numbers: dict[str, int] = {}
            feed["slots"] = np.array([[numbers.setdefault(word, len(numbers)) for word in words]], dtype=np.int64)
            spelled = [self._letters.encode(word) for word in numbers]
            half = longest // 2
            spelled = [ids if len(ids) <= longest else ids[:half] + ids[half - longest :] for ids in spelled]
            feed["spelled"] = np.array([len(ids) for ids in spelled], dtype=np.int64)
            feed["letters"] = np.zeros((len(spelled), int(feed["spelled"].max())), dtype=np.int64)
            for row, letters in zip(feed["letters"], spelled):
                row[: len(letters)] = letters
        scores_TK = self._graph(feed)["scores"][0].astype(np.float64)
        if self._chain is None:
            p_TK = _softmax(scores_TK)
            best = p_TK.argmax(-1).tolist()
        else:
            best, p_TK = _best_path(scores_TK, *self._chain), _marginals(scores_TK, *self._chain)
        return best, p_TK[np.arange(len(words)), best]

    def generate(self, prompt: str = "", **_: Any) -> str:
        """The words of the prompt, one a line with its tag; each line of it is a sentence."""
        rows = self.predict_rows([line.split() for line in prompt.splitlines() if line.split()])
        return "\n\n".join("\n".join(map(" ".join, zip(row["words"], row["tags"]))) for row in rows)


def _best_path(scores_TK: Array, transition_KK: Array, start_K: Array, end_K: Array) -> list[int]:
    """Viterbi 1967."""
    delta_K, origins = start_K + scores_TK[0], []
    for scores_K in scores_TK[1:]:
        through_KK = delta_K[:, None] + transition_KK
        origins.append(through_KK.argmax(0))
        delta_K = through_KK.max(0) + scores_K
    best = [int((delta_K + end_K).argmax())]
    for origin_K in reversed(origins):
        best.append(int(origin_K[best[-1]]))
    return best[::-1]


def _marginals(scores_TK: Array, transition_KK: Array, start_K: Array, end_K: Array) -> Array:
    """The probability of each tag over all paths, forward and backward."""
    with np.errstate(divide="ignore"):  # what is forbidden is log 0
        forward, backward = [start_K + scores_TK[0]], [end_K]
        for scores_K in scores_TK[1:]:
            forward.append(np.logaddexp.reduce(forward[-1][:, None] + transition_KK, 0) + scores_K)
        for scores_K in scores_TK[:0:-1]:
            backward.append(np.logaddexp.reduce(transition_KK + scores_K + backward[-1], 1))
    return _softmax(np.stack(forward) + np.stack(backward[::-1]))


def _within(times_T: Array, period: str, unit: str) -> Array:
    """How many units since its period began."""
    begin_T = times_T.astype(f"datetime64[{period}]")
    since_T: Array = times_T.astype(f"datetime64[{unit}]") - begin_T.astype(f"datetime64[{unit}]")
    return since_T.astype(np.float64)


# Features of times, each from -1/2 to 1/2 over the calendar's range.
CALENDAR: dict[str, Callable[[Array], Array]] = {
    "minute": lambda time_T: _within(time_T, "h", "m") / 59 - 0.5,
    "hour": lambda time_T: _within(time_T, "D", "h") / 23 - 0.5,
    # The first day of the epoch was a Thursday; Monday is 0.
    "weekday": lambda time_T: (time_T.astype("datetime64[D]").astype(np.int64) + 3) % 7 / 6 - 0.5,
    "day": lambda time_T: _within(time_T, "M", "D") / 30 - 0.5,
    "month": lambda time_T: _within(time_T, "Y", "M") / 11 - 0.5,
}


class _Past(NamedTuple):
    """What is known, as graphs read it: scaled, nothing missing."""

    values_BLC: Array
    observed_BLC: Array  # 1 where a value was not missing
    covariates_BTX: Array  # of the context and of all that is asked for


class Forecaster:
    """An exported forecaster: means of the values that come next, or futures drawn by chance."""

    def __init__(self, folder: Path, about: Mapping[str, Any], *, int8: bool, threads: int) -> None:
        self.path, self._settings = folder, about["settings"]
        self.channels: list[str] = self._settings["channels"]
        self.covariates: list[str] = self._settings["covariates"]
        self.horizon: int = self._settings["horizon"]
        self._direct = "forecast.onnx" in about["bytes"]
        names = ("forecast",) if self._direct else ("sequence", "step", "value")
        self._graphs = {name: Graph(folder / f"{name}.onnx", threads=threads) for name in names}
        self._start: Arrays = {} if self._direct else read_safetensors(folder / "start.safetensors")[0]

    def predict(
        self,
        data: Any,
        *,
        horizon: int | None = None,
        covariates: Any = None,
        times: Any = None,
        draw: int | None = None,
    ) -> Any:
        """`[T]`, `[T, C]` or `[N, T, C]` to as many axes of what comes next; of a list of arrays, a list.

        `covariates` are `[T + horizon, X]`, `times` are `[T + horizon]` of datetime64, where the run reads them; of
        several series, one of these each. With a seed `draw`, it is one sampled future, of a run that samples.
        """
        several = isinstance(data, list | tuple) and bool(data) and isinstance(data[0], np.ndarray)
        arrays = [np.asarray(series, dtype=np.float64) for series in (data if several else [data])]
        if not several and arrays[0].ndim == 3:
            arrays, several = list(arrays[0]), True
        names = ["series"] if len(arrays) == 1 else map(str, range(len(arrays)))
        beside = [part if several and part is not None else [part] * len(arrays) for part in (covariates, times)]
        forecasts = []
        for values, name, known, time in zip(arrays, names, *beside, strict=True):
            past, mean_C, std_C, horizon_ = self._read(values, name, horizon, known, time)
            scaled_BHC = self._ahead(past, horizon_, draw)
            scaled_HC = scaled_BHC[:, :, 0].T if self._settings["shared"] else scaled_BHC[0]
            ahead_HC = scaled_HC.astype(np.float64) * std_C + mean_C
            forecasts.append(ahead_HC[:, 0] if values.ndim == 1 else ahead_HC)
        return forecasts[0] if not several else forecasts if isinstance(data, list | tuple) else np.stack(forecasts)

    def _read(
        self, values: Array, name: str, horizon: int | None, covariates: Any, times: Any
    ) -> tuple[_Past, Array, Array, int]:
        """The context of a forecast, the mean and deviation of its values, and how far it goes."""
        settings, channels = self._settings, len(self.channels)
        values_TC = values.reshape(len(values), -1)
        if values_TC.shape[1] != channels or np.isnan(values_TC).all():
            raise ValueError(f"a series has shape {list(values.shape)}, expected values of [T, {channels}]")
        missing_TC = np.isnan(values_TC)
        if settings["missing"] == "refuse" and missing_TC.any():
            raise ValueError("a series has missing values, which this run refuses; fill them in")
        if settings["missing"] == "forward":
            seen_TC = np.logical_or.accumulate(~missing_TC, 0)
            values_TC = np.where(seen_TC, _carried(values_TC, ~missing_TC), np.nan)
        origin = int(np.flatnonzero(~np.isnan(values_TC).all(1))[-1]) + 1
        values_TC = values_TC[:origin]
        mean_C, std_C = self._scale(values_TC, name)
        context = origin if settings["context"] == "all" else settings["context"]
        begin, horizon = max(0, origin - context), horizon or self.horizon
        asked = -(-horizon // self.horizon) * self.horizon if self._direct else horizon
        known_TX = self._known(covariates, times, origin, asked)[begin:]
        lacking = context - (origin - begin)  # before the beginning nothing was observed
        scaled_LC = np.pad((values_TC[begin:] - mean_C) / std_C, ((lacking, 0), (0, 0)), constant_values=np.nan)
        known_TX = np.concatenate([np.repeat(known_TX[:1], lacking, 0), known_TX])
        observed_LC = ~np.isnan(scaled_LC)
        filled_LC = _carried(np.nan_to_num(scaled_LC), observed_LC)
        rows = [part.T[:, :, None] if settings["shared"] else part[None] for part in (filled_LC, observed_LC)]
        known_BTX = np.repeat(known_TX[None], len(rows[0]), 0)
        past = _Past(*(part.astype(np.float32) for part in (*rows, known_BTX)))
        return past, mean_C, std_C, horizon

    def _known(self, covariates: Any, times: Any, origin: int, asked: int) -> Array:
        """Covariates and features of the times `[T, X]`, as the model reads them."""
        rows = origin + asked
        given = np.zeros((rows, 0)) if covariates is None else np.asarray(covariates, dtype=np.float64)
        given_TX = given.reshape(len(given), -1)[:rows]
        if given_TX.shape != (rows, len(self.covariates)) or np.isnan(given_TX).any():
            raise ValueError(
                f"covariates have shape {list(given_TX.shape)}, expected [{rows}, {len(self.covariates)}] without gaps "
                f"({', '.join(self.covariates) or 'none'}), for all time steps and those of the forecast"
            )
        if self._settings["covariate_mean"]:
            given_TX = (given_TX - self._settings["covariate_mean"]) / np.array(self._settings["covariate_std"])
        features = []
        for name in self._settings["time_features"]:
            if name == "t":
                features.append(np.arange(rows) / max(1, self._settings["until"]))
                continue
            if times is None or len(times) < rows:
                raise ValueError(f"this run reads the {name}; give times, {rows} of datetime64")
            features.append(CALENDAR[name](np.asarray(times, dtype="datetime64[s]")[:rows]))
        return np.column_stack([given_TX, *features])

    def _scale(self, values_TC: Array, name: str) -> tuple[Array, Array]:
        """Of all series together, of this one in training, or of its own values."""
        of_all, own = self._settings["scaling"], self._settings["scaling_of"]
        known = own.get(name, of_all)
        mean_C, std_C = np.array(known["mean"]), np.array(known["std"])
        if not own or name in own:
            return mean_C, std_C
        for channel, values_T in enumerate(values_TC.T):
            seen_T = values_T[~np.isnan(values_T)]
            if len(seen_T):
                still = seen_T.std() <= 1e-12 * np.abs(seen_T).max()
                mean_C[channel] = seen_T[0] if still else seen_T.mean()
                std_C[channel] = std_C[channel] if still else seen_T.std()
        return mean_C, std_C

    def _ahead(self, past: _Past, horizon: int, draw: int | None) -> Array:
        """Scaled: what comes next, `[B, horizon, C]`."""
        settings = self._settings
        if not self._direct:
            paths = 0 if settings["certain"] else settings["paths"] if draw is None else 1
            sampled, mean_BC = self._rolled(past, horizon, paths, settings["seed"] if draw is None else draw)
            mean_BHC: Array = sampled[0] if not paths or draw is not None else sampled.mean(0)
            if paths and draw is None:
                mean_BHC[:, 0] = mean_BC  # the first time step needs no samples
            return mean_BHC
        length, means = past.values_BLC.shape[1], []
        for _ in range(-(-horizon // self.horizon)):
            values_BLC, observed_BLC, known_BTX = past
            feed = {"values": values_BLC}
            feed |= {"observed": observed_BLC} if self._settings["gaps"] else {}
            feed |= {"covariates": known_BTX[:, : length + self.horizon]} if known_BTX.shape[2] else {}
            mean_BHC = self._graphs["forecast"](feed)["mean"]
            means.append(mean_BHC)
            values_BTC = np.concatenate([values_BLC, mean_BHC], 1)[:, -length:]
            observed_BTC = np.concatenate([observed_BLC, np.ones_like(mean_BHC)], 1)[:, -length:]
            past = _Past(values_BTC, observed_BTC, known_BTX[:, self.horizon :])
        return np.concatenate(means, 1)[:, :horizon]

    def _rolled(self, past: _Past, horizon: int, paths: int, seed: int) -> tuple[Array, Array]:
        """One value after the other, each the next input: `[S, B, horizon, C]`; and the mean of the first."""
        values_BLC, observed_BLC, known_BTX = past
        rows, length, channels = values_BLC.shape
        if self._settings["longest"] is not None:
            _refuse_long(length + horizon - 1, self._settings["longest"])
        next_BTX = np.concatenate([known_BTX[:, 1:], known_BTX[:, -1:]], 1)
        state = {name: np.repeat(array, rows, 0) for name, array in self._start.items()}
        read = self._entering(values_BLC, observed_BLC, next_BTX[:, :length])
        outputs = self._graphs["sequence"]({"input": read, **state})
        row_N, path_N = np.tile(np.arange(rows), max(1, paths)), np.repeat(np.arange(max(1, paths)), rows)
        y_ND = outputs["output"][row_N, -1]
        state = {name: outputs[_AFTER + name][row_N] for name in state}
        ahead_NHX = next_BTX[row_N, length:]
        draw_C2 = np.arange(2 * channels).reshape(channels, 2)
        first: Array | None = None
        values: list[Array] = []
        for step in range(horizon):
            feed = {"output": y_ND}
            if not self._settings["certain"]:
                place_C2 = draw_C2 + step * draw_C2.size
                bits = future_bits(seed, row_N[:, None, None], path_N[:, None, None], place_C2)
                feed["uniform"] = bits * 2.0**-53
            given = self._graphs["value"](feed)
            first = given["mean"][:rows] if first is None else first
            values.append(given["drawn" if paths else "mean"])
            if step + 1 == horizon:
                break
            fed_NC = values[-1].round() if self._settings["bits"] else values[-1]
            read = self._entering(fed_NC, np.ones_like(fed_NC), ahead_NHX[:, step])
            after = self._graphs["step"]({"input": read, **state})
            y_ND, state = after["output"], {name: after[_AFTER + name] for name in state}
        assert first is not None
        return np.stack(values, 1).reshape(max(1, paths), rows, horizon, channels), first

    def _entering(self, values: Array, observed: Array, known: Array) -> Array:
        """Where some values were missing in training, each comes with a mark that it is known."""
        return np.concatenate([values, observed, known] if self._settings["gaps"] else [values, known], -1)

    def generate(
        self, prompt: str = "", *, tokens: int | None = None, sampling: Sampling | None = None, **_: Any
    ) -> str:
        """What follows the values of the prompt, a line for each time step: a sampled future, where the run samples."""
        values = _numbers(prompt)
        if not len(values) or len(values) % len(self.channels):
            raise ValueError(f"the prompt has {len(values)} values; give {len(self.channels)} for each time step")
        sampling = _checked(sampling, tokens, least=1)
        draw = sampling.seed if sampling.temperature else None
        rows = self.predict(values.reshape(-1, len(self.channels)), horizon=tokens, draw=draw)
        return "\n".join(",".join(f"{value:.10g}" for value in row_C) for row_C in rows)


def _carried(values_TC: Array, observed_TC: Array) -> Array:
    """Each missing value becomes the last one before it, at the beginning the first one after."""
    place_TC = np.where(observed_TC, np.arange(len(values_TC))[:, None], -1)
    last_TC = np.maximum.accumulate(place_TC, 0)
    filled_TC: Array = np.take_along_axis(values_TC, np.where(last_TC < 0, observed_TC.argmax(0), last_TC), 0)
    return filled_TC


_SPACE = r" \t\n\r\f\v"  # other white space may be part of a word
# An opening bracket with its label and, for a leaf, its word and closing bracket; or the end of a node; or a word.
_PART = re.compile(rf"\([{_SPACE}]*([^{_SPACE}()]*)(?:[{_SPACE}]+([^{_SPACE}()]+)[{_SPACE}]*\))?|(\)|[^{_SPACE}()]+)")


class _Tree:
    """A tree in brackets, its nodes in the order of writing: parents first."""

    def __init__(self, text: str) -> None:
        self.parts = _PART.findall(text)
        if self.parts[:1] == [("", "", "")]:  # Penn's brackets around a whole tree
            self.parts = self.parts[1:-1]
        self.children: list[list[int]] = []
        self.words: list[str | None] = []
        self.labelled: list[int] = []
        roots: list[int] = []
        above = [roots]
        for label, word, other in self.parts:
            if other == ")":
                if len(above) < 2 or not above.pop():
                    raise ValueError(f"{text[:60]!r} is not a tree in brackets, such as (1 (0 a) (1 b))")
                continue
            if not label and not other:
                raise ValueError(f"{text[:60]!r}: a node has no label")
            above[-1].append(len(self.children))
            if not other:
                self.labelled.append(len(self.children))
            self.children.append([])
            self.words.append(word or other or None)
            if not word and not other:
                above.append(self.children[-1])
        if len(roots) != 1 or len(above) != 1:
            raise ValueError(f"{text[:60]!r} is not one tree in brackets, such as (1 (0 a) (1 b))")

    def written(self, labels: Sequence[str]) -> str:
        """With these labels at its first nodes that have one."""
        new, text = iter(labels), ""
        for label, word, other in self.parts:
            part = other or f"({next(new, label)}" + (f" {word})" if word else "")
            text += part if part == ")" or not text else f" {part}"
        return text

    def spans(self) -> list[list[int]]:
        """Of each node, its first word and the first after it."""
        begins, words = [], 0
        for word in self.words:
            begins.append(words)
            words += word is not None
        ends = [begin + 1 for begin in begins]
        for node in reversed(range(len(ends))):
            if self.children[node]:
                ends[node] = ends[self.children[node][-1]]
        return [[begin, end] for begin, end in zip(begins, ends)]


def _collapsed(children: list[list[int]]) -> tuple[list[list[int]], list[int]]:
    """Each node and its only child as one; and which of the new nodes each is."""
    top = list(range(len(children)))
    for parent, own in enumerate(children):  # parents first, so that a chain ends at its top
        if len(own) == 1:
            top[own[0]] = top[parent]
    place = {node: number for number, node in enumerate(node for node in range(len(top)) if top[node] == node)}
    made: list[list[int]] = [[] for _ in place]
    for node, own in enumerate(children):
        if len(own) > 1:
            made[place[top[node]]] += [place[child] for child in own]
    return made, [place[node] for node in top]


def _binarised(children: list[list[int]], side: str) -> list[list[int]]:
    """More than two children as nested pairs, of nodes that come last."""
    made = [list(own) for own in children]
    for node in range(len(children)):
        many = made[node] if side == "left" else made[node][::-1]
        while len(many) > 2:
            made.append(many[:2] if side == "left" else many[1::-1])
            many = [len(made) - 1, *many[2:]]
        made[node] = many if side == "left" else many[::-1]
    return made


def _heights(children: Sequence[Sequence[int]]) -> list[list[int]]:
    """The nodes of each height above the leaves, lowest first."""
    height, waiting = [-1] * len(children), list(range(len(children)))
    while waiting:
        below = [child for child in children[waiting[-1]] if height[child] < 0]
        if below:
            waiting += below
            continue
        node = waiting.pop()
        height[node] = 1 + max((height[child] for child in children[node]), default=-1)
    nodes_at: list[list[int]] = [[] for _ in range(max(height) + 1)]
    for node, at in enumerate(height):
        nodes_at[at].append(node)
    return nodes_at


class TreeClassifier:
    """An exported classifier of trees in brackets: a label for the root, or for every node."""

    def __init__(self, folder: Path, about: Mapping[str, Any], *, int8: bool, threads: int) -> None:
        self.path, self._settings = folder, about["settings"]
        self.labels: list[str] = self._settings["labels"]
        reads = self._settings["shape"] == "read"
        self._graph = Graph(folder / ("classify.onnx" if reads else "compose.onnx"), threads=threads)
        self._tokenizer = _Tokenizer(folder / "tokenizer.json", end_id=None)

    def predict(self, data: Any) -> Any:
        """A tree with the labels that the model gives, or each of a list."""
        if isinstance(data, str):
            return self.predict([data])[0]
        return [row["tree"] for row in self.predict_rows(data)]

    def predict_rows(self, data: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The label of each root with all probabilities, and those of the nodes."""
        for number, text in enumerate(data):
            tree = _Tree(text)
            shown = tree.labelled[:1] if self._settings["nodes"] == "root" else tree.labelled
            spans, words = tree.spans(), [word for word in tree.words if word is not None]
            match self._settings["shape"]:
                case "given":
                    logits_MK = self._logits(tree)[shown]
                case "read":
                    logits_MK = self._read([words[slice(*spans[node])] for node in shown])
                case shape:
                    logits_MK = np.stack([self._built(words[slice(*spans[node])], shape) for node in shown])
            p_MK = _softmax(logits_MK.astype(np.float64))
            labels = [self.labels[k] for k in p_MK.argmax(-1)]
            yield {
                "row": number,
                "label": labels[0],
                "probabilities": dict(zip(self.labels, p_MK[0].tolist())),
                "nodes": [
                    {"label": label, "probability": p, "span": spans[node]}
                    for label, p, node in zip(labels, p_MK.max(-1).tolist(), shown)
                ],
                "tree": tree.written(labels),
            }

    def _ids(self, words: Sequence[str]) -> list[int]:
        return [self._tokenizer.encode(word)[0] for word in words]

    def _read(self, spans: Sequence[Sequence[str]]) -> Array:
        """Of words that are read one after the other."""
        longest = max(map(len, spans))
        _refuse_long(longest, self._settings["context"])
        words_MT = np.zeros((len(spans), longest), dtype=np.int64)
        for row_T, words in zip(words_MT, spans):
            row_T[: len(words)] = self._ids(words)
        logits_MK: Array = self._graph({"words": words_MT, "lengths": np.array([len(words) for words in spans])})[
            "logits"
        ]
        return logits_MK

    def _built(self, words: Sequence[str], shape: str) -> Array:
        """Of the root of a tree over words: neighbours in pairs, or each the parent of the one before."""
        ids, nodes = self._ids(words), list(range(len(words)))
        if shape == "chain":
            root_K: Array = self._composed([[node - 1] if node else [] for node in nodes], ids)[-1]
            return root_K
        children: list[list[int]] = [[] for _ in nodes]
        while len(nodes) > 1:
            pairs = [nodes[at : at + 2] for at in range(0, len(nodes) - 1, 2)]
            above = range(len(children), len(children) + len(pairs))
            children += pairs
            nodes = [*above, *nodes[2 * len(pairs) :]]  # an odd one out waits
        root_K = self._composed(children, ids)[nodes[0]]
        return root_K

    def _logits(self, tree: _Tree) -> Array:
        """Of all nodes as they are written."""
        children, place = tree.children, list(range(len(tree.children)))
        if self._settings["unary"] == "collapse":
            children, place = _collapsed(children)
        if self._settings["binarise"] != "none":
            children = _binarised(children, self._settings["binarise"])
        arity, widest = self._settings["arity"], max(map(len, children))
        if arity is not None and widest > arity:
            raise ValueError(f"a node has {widest} children, and this model takes {arity}")
        ids = [-1] * len(children)
        for node, word in enumerate(tree.words):
            if word is not None:
                (ids[place[node]],) = self._ids([word])
        return self._composed(children, ids)[place]

    def _composed(self, children: Sequence[Sequence[int]], ids: Sequence[int]) -> Array:
        """Of all nodes, the first of which have words (-1: none); those of one height are composed at once."""
        arity, nodes = self._settings["arity"], len(children)
        words_N = np.full(nodes, -1, dtype=np.int64)
        words_N[: len(ids)] = ids
        nothing = np.zeros((nodes + 1, self._settings["width"]), dtype=np.float32)  # the last is for absent children
        states = {name: nothing.copy() for name in self._settings["state"]}
        logits_NK = np.zeros((nodes, len(self.labels)), dtype=np.float32)
        for some in _heights(children):
            places = arity or max(1, max(len(children[node]) for node in some))
            child_MC = np.full((len(some), places), nodes)
            for row_C, node in zip(child_MC, some):
                row_C[: len(children[node])] = children[node]
            outputs = self._graph({"words": words_N[some], **{name: held[child_MC] for name, held in states.items()}})
            logits_NK[some] = outputs["logits"]
            for name, held in states.items():
                held[some] = outputs[_AFTER + name]
        return logits_NK

    def generate(self, prompt: str = "", **_: Any) -> str:
        """The trees of the prompt, one a line, with the labels that the model gives."""
        return "\n".join(self.predict([line for line in prompt.splitlines() if line.strip()]))


class Translator:
    """An exported translation run: greedy or sampled, one token after another; it has no beam search."""

    def __init__(self, folder: Path, about: Mapping[str, Any], *, int8: bool, threads: int) -> None:
        self.path, self._settings = folder, about["settings"]
        settings = self._settings
        # Of a series, every token is a number; no token of a target is its end symbol.
        self.target = _Tokenizer(
            folder / Path(settings["target"]).name, end_id=None if settings["shares_places"] else settings["end"]
        )
        self.source: _Tokenizer | None = None
        if settings["source_kind"] == "text":
            self.source = _Tokenizer(folder / Path(settings["source"]).name, end_id=settings["source_end"])
        self._condition, self._step = (
            Graph(folder / f"{name}.onnx", threads=threads) for name in ("condition", "step")
        )

    def predict(self, data: Any) -> Any:
        """The greedy translation of a text, a class or a vector, or of each in a list; of a series, its numbers.

        It is that of `statewise predict` with a beam of 1.
        """
        if isinstance(data, list) or (isinstance(data, np.ndarray) and data.ndim == 2):
            return [self.predict(source) for source in data]
        if isinstance(data, str) and not data.strip():
            return ""
        text = self._written(data, None, Sampling(temperature=0.0), by_step=self._settings["ends"] != "symbol")
        return [float(number) for number in text.split()] if self._settings["series"] else text

    def generate(self, prompt: str = "", *, tokens: int | None = None, sampling: Sampling | None = None) -> str:
        """A sampled translation of the prompt."""
        if not prompt.strip():
            raise ValueError("a translation run needs a prompt; give one")
        return self._written(prompt, tokens, _checked(sampling, tokens), by_step=False)

    def _read(self, given: Any) -> tuple[Arrays, int]:
        """What `condition` reads, and how long it is."""
        settings = self._settings
        if self.source is not None:
            ids = self.source.encode(given)[: settings["longest_source"]]
            ids = [*(reversed(ids) if settings["reverse"] else ids), settings["source_end"]]
            _refuse_long(len(ids), settings["context"])
            return {"tokens": np.array([ids])}, len(ids)
        if settings["source_kind"] == "class":
            if str(given).strip() not in settings["classes"]:
                raise ValueError(f"{given!r} is no class that was learned; give one of {settings['classes'][:12]}")
            return {"tokens": np.array([[settings["classes"].index(str(given).strip())]])}, 1
        values_I = _numbers(given) if isinstance(given, str) else np.asarray(given, dtype=np.float64)
        if values_I.shape != (len(settings["mean"]),):
            raise ValueError(f"a vector has shape {list(values_I.shape)}, expected [{len(settings['mean'])}]")
        scaled_I = (values_I - np.array(settings["mean"])) / np.array(settings["std"])
        return {"values": scaled_I[None, None].astype(np.float32)}, 1

    def _written(self, given: Any, tokens: int | None, sampling: Sampling, *, by_step: bool) -> str:
        """With `by_step`, the likelier of going on and stopping at every step, and then the likeliest symbol."""
        settings, end = self._settings, self._settings["end"]
        read, size = self._read(given)
        wanted = settings.get("longest_learned") or math.ceil(settings["max_ratio"] * (size - 1))
        limits: list[int] = [wanted + settings["extra"]]
        if settings["most_written"] is not None:
            limits.append(settings["most_written"] - (size if settings["shares_places"] else 0))
        longest = min(limits if tokens is None else [*limits, tokens])
        least = min(settings["min_length"], longest)
        state = self._condition({**read, "lengths": np.array([size])})
        if settings["ends"] == "remaining":
            due = _predicted_length(state.pop("length")[0].astype(np.float64), sampling)
            state["due_B"] = np.array([due if by_step else min(max(due, least), longest)])
        written: list[int] = []
        seen_V: Array | None = None
        token = end
        while True:
            outputs = self._step({"tokens": np.array([token]), **state})
            state = {name: outputs[_AFTER + name] for name in state}
            logits_V = outputs["logits"][0].copy()
            full = len(written) == longest
            logits_V[settings["never"]] = -np.inf
            ending = -np.inf if len(written) < least else logits_V[end]
            if by_step:
                if full or ending > math.log(0.5):
                    break
                ending = -np.inf
            elif full:
                logits_V[:] = -np.inf
            logits_V[end] = ending
            seen_V = np.zeros(len(logits_V), dtype=bool) if seen_V is None else seen_V
            token = choose(logits_V, seen_V=seen_V, position=len(written), sampling=sampling)
            if token == end:
                break
            seen_V[token] = True
            written.append(token)
        return self.target.decode(written)


def _predicted_length(parts: Array, sampling: Sampling) -> int:
    """The median of a mixture of logistic distributions over whole numbers, or a sample of it."""
    weight_K, location_K, scale_K = np.split(parts, 3)
    weight_K, location_K, scale_K = _softmax(weight_K), location_K * 16, _softplus(scale_K) * 4 + 0.05
    below = 0.5
    if sampling.temperature:
        words = np.random.SeedSequence([sampling.seed]).generate_state(2, np.uint64)
        raw = np.random.Philox(key=words, counter=np.zeros(4, dtype=np.uint64)).random_raw(1)
        below = float((raw[0] >> np.uint64(11)) * 2.0**-53)
    low, high = -1, max(1, math.ceil(float((location_K + 60 * scale_K).max())))
    while high - low > 1:
        middle = (low + high) // 2
        with np.errstate(over="ignore"):
            up_to_K = 1 / (1 + np.exp(-(middle + 0.5 - location_K) / scale_K))
        low, high = (low, middle) if (weight_K * up_to_K).sum() > below else (middle, high)
    return high


def _checked(sampling: Sampling | None, tokens: int | None, *, least: int = 0) -> Sampling:
    if tokens is not None and tokens < least:
        raise ValueError(f"tokens = {tokens} is not valid, expected {least} or more")
    sampling = sampling or Sampling()
    sampling.check()
    return sampling


def _refuse_long(tokens: int, context: int | None) -> None:
    if context is not None and tokens > context:
        raise ValueError(f"the text has {tokens} tokens, and this model has {context} positions; give less")


def _fits(shape: tuple[int, ...], like: tuple[int, ...]) -> bool:
    """The same sizes but for lists, which are empty at the beginning."""
    return len(shape) == len(like) and all(a == b or b == 0 for a, b in zip(shape, like))


def load(folder: str | Path, *, int8: bool = False, threads: int = 1) -> Any:
    """Open a folder that `statewise export` wrote; with `int8`, its smaller graphs."""
    folder = Path(folder)
    try:
        about = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{str(folder)!r} is not a folder that `statewise export` wrote") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(folder / 'export.json')!r} is damaged: {error}") from None
    if not isinstance(about, dict):
        raise ValueError(f"{str(folder / 'export.json')!r} is damaged: it holds no table")
    if about.get("format") != FORMAT:
        raise ValueError(f"{str(folder)!r} has format {about.get('format')}, expected {FORMAT}; export the run again")
    if int8 and "int8" not in about:
        raise ValueError(f"{str(folder)!r} has no int8 graphs; export the run again, with them")
    try:
        return _RUNS[about["task"]](folder, about, int8=int8, threads=threads)
    except (LookupError, TypeError, AttributeError, OSError) as error:
        raise ValueError(f"{str(folder)!r} is not complete: {error}; export the run again") from None


_RUNS: dict[str, Callable[..., Any]] = {
    "language_model": LanguageModel,
    "classification": Classifier,
    "translation": Translator,
    "tagging": Tagger,
    "forecasting": Forecaster,
    "tree": TreeClassifier,
}


def main() -> int:
    """`python runtime.py [FOLDER] --prompt TEXT`: the folder is by default the one that this file is in."""
    parser = argparse.ArgumentParser(description="Run an exported model without PyTorch.")
    parser.add_argument("folder", nargs="?", default=Path(__file__).parent, help="what `statewise export` wrote")
    parser.add_argument("--prompt", "-p", default="", help="the text to continue, or the input to answer")
    parser.add_argument(
        "--tokens", "-n", type=int, help="at most so many new tokens (300), or time steps of a forecast"
    )
    parser.add_argument("--int8", action="store_true", help="use the smaller graphs")
    for name, kind, default in (
        ("temperature", float, 0.8),
        ("top-k", int, None),
        ("top-p", float, None),
        ("min-p", float, None),
        ("repetition", float, 1.0),
        ("seed", int, 0),
    ):
        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument("--stop", action="append", default=[], help="end before this text")
    asked = parser.parse_args()
    sampling = Sampling(asked.repetition, asked.temperature, asked.top_k, asked.top_p, asked.min_p, asked.seed)
    try:
        run = load(asked.folder, int8=asked.int8)
        if not isinstance(run, LanguageModel):
            print(run.generate(asked.prompt, tokens=asked.tokens, sampling=sampling))
            return 0
        print(asked.prompt, end="")
        for piece, _ in run.stream(asked.prompt, tokens=asked.tokens or 300, sampling=sampling, stop=asked.stop):
            print(piece, end="", flush=True)
        print()
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

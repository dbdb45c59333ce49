"""A text as two token streams, training and held out: `[end] document [end] document ... [end]`."""

import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.data.batch import release
from statewise.data.cache import Facts, default_folder, open_entry
from statewise.data.file import STDIN
from statewise.data.source import Source, measure, open_source
from statewise.data.text import PIECE, Piece, num_bytes
from statewise.data.tokenizer import Tokenizer
from statewise.specs import TOKENIZERS, DataSpec, UserError, nearest

# Larger texts, in bytes, are tokenised once into a memory-mapped file.
IN_MEMORY = 1 << 26
_VERSION = 1

_BLOCK, _CHUNK = 1 << 20, 1 << 22

Direction = Literal["forward", "reverse"]
Progress = Callable[[str, int, int], None]


class Count(NamedTuple):
    """The UTF-8 bytes of the text written, and the number of unknown tokens."""

    bytes: int
    unknown: int


class Split(NamedTuple):
    """A stream of tokens, the UTF-8 bytes of its text, and the number of unknown tokens."""

    tokens: NDArray[np.unsignedinteger]
    bytes: int
    unknown: int


class Corpus(NamedTuple):
    """`sha256` is that of the normalised text, documents joined by \\0."""

    train: Split
    validation: Split
    tokenizer: Tokenizer
    sha256: str
    name: str


def open_corpus(
    spec: DataSpec,
    *,
    tokenizer: Tokenizer | None = None,
    spool: Path | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Read, split and tokenise the text of `spec`; a large one is cached.

    The tokenizer is trained on the training part, unless one is given or `spec` names a file.
    `progress(what, done, total)` is called with bytes.
    """
    if STDIN in spec.text and STDIN in spec.validation:
        raise UserError(
            "standard input '-' is both text and validation", fix="leave validation out, or name a file for it"
        )
    opened = partial(open_source, separator=spec.separator, text_column=spec.text_column, spool=spool)
    text, held = opened(spec.text), opened(spec.validation) if spec.validation else None
    if tokenizer is None and spec.tokenizer not in TOKENIZERS:
        tokenizer = _named_tokenizer(spec)
    making = _Making(spec, text, held, tokenizer, progress)
    if text.size + (held.size if held else 0) <= IN_MEMORY:
        return making.corpus(lambda name: BytesIO())
    return _cached(making, folder=cache or default_folder())


def encode_files(
    paths: Sequence[str],
    tokenizer: Tokenizer,
    *,
    spec: DataSpec | None = None,
    spool: Path | None = None,
    progress: Progress | None = None,
) -> Split:
    """Any text as one stream, with an existing tokenizer; `spec` says how it is read."""
    spec = spec or DataSpec()
    with tempfile.TemporaryDirectory() as temporary:
        spool = spool or Path(temporary, "stdin")
        source = open_source(paths, separator=spec.separator, text_column=spec.text_column, spool=spool)
        # A large stream is in an unnamed file, which is removed with its array.
        file: BinaryIO = BytesIO() if source.size <= IN_MEMORY else tempfile.TemporaryFile()  # noqa: SIM115  (its array closes it)
        pieces = _watched(source.pieces(), "tokenising", source.size, progress)
        split = _split(file, tokenizer, write_tokens(pieces, tokenizer, file=file, direction=spec.direction))
    if len(split.tokens) < 3:
        raise UserError(f"{source.name!r} holds no text", fix="name a file with at least one word in it")
    return split


class _Making(NamedTuple):
    """Everything that determines the content of a corpus."""

    spec: DataSpec
    text: Source
    held: Source | None
    tokenizer: Tokenizer | None
    progress: Progress | None

    def key(self) -> str:
        """Changes whenever the tokens could."""
        spec = self.spec
        tokenizer: Any = self.tokenizer.sha256 if self.tokenizer else [spec.tokenizer, spec.vocab]
        options = [_VERSION, PIECE, tokenizer, spec.held_out, self.text.separator, spec.direction]
        content = [source.fingerprint() if source else None for source in (self.text, self.held)]
        return hashlib.sha256(json.dumps([options, content]).encode()).hexdigest()

    def corpus(self, new_file: Callable[[str], BinaryIO]) -> Corpus:
        """Three passes: measure, train the tokenizer, write the tokens."""
        spec, text, held = self.spec, self.text, self.held
        total, sha256 = measure(_watched(text.pieces(), "reading", text.size, self.progress))
        if not total:
            raise UserError(f"{text.name!r} holds no text", fix="name a file or a folder with UTF-8 text in it")
        cut = total if held else int((1 - spec.held_out) * total)
        tokenizer = self.tokenizer
        if tokenizer is None:
            pieces = _watched(text.pieces(stop=cut), "learning the vocabulary", cut, self.progress)
            tokenizer = Tokenizer.train(spec.tokenizer, (piece.text for piece in pieces), vocab=spec.vocab)

        def split(name: str, pieces: Iterator[Piece], size: int) -> Split:
            file = new_file(name)
            watched = _watched(pieces, f"tokenising {name}", size, self.progress)
            return _split(file, tokenizer, write_tokens(watched, tokenizer, file=file, direction=spec.direction))

        train = split("train", text.pieces(stop=cut), cut)
        if held:
            validation = split("validation", held.pieces(), held.size)
            sha256 = hashlib.sha256((sha256 + measure(held.pieces()).sha256).encode()).hexdigest()
        else:
            validation = split("validation", text.pieces(start=cut), total - cut)
            if train.bytes + validation.bytes != total:
                raise UserError(f"{text.name!r} changed while it was read", fix="run again when it is complete")
        self._refuse_tiny(train, validation, total)
        return Corpus(train, validation, tokenizer, sha256, text.name)

    def _refuse_tiny(self, train: Split, validation: Split, total: int) -> None:
        for part, split in (("training", train), ("validation", validation)):
            if len(split.tokens) >= 3:
                continue
            if self.held:
                name = (self.text if split is train else self.held).name
                raise UserError(f"{name!r}, the {part} text, holds no token", fix="give it at least one word")
            share = min(self.spec.held_out, 1 - self.spec.held_out)
            raise UserError(
                f"{self.text.name!r} is too small to hold out {self.spec.held_out:.0%} of it: "
                f"of {total} bytes, the {part} part has {split.bytes} and no token",
                fix=f"give at least {math.ceil(2 / share)} bytes of text, or name a file as `validation`",
            )


def _cached(making: _Making, *, folder: Path) -> Corpus:
    def make(entry: Path) -> Facts:
        corpus = making.corpus(lambda name: (entry / name).open("w+b"))
        corpus.tokenizer.save(entry / "tokenizer.json")
        counts = {"train": corpus.train[1:], "validation": corpus.validation[1:]}
        return {"sha256": corpus.sha256, "counts": counts}

    entry, facts = open_entry(making.key(), folder=folder, make=make)
    tokenizer = making.tokenizer or Tokenizer.load(entry / "tokenizer.json")

    def split(name: str) -> Split:
        tokens = np.memmap(entry / name, token_dtype(tokenizer), mode="r")
        return Split(tokens, *facts["counts"][name])

    return Corpus(split("train"), split("validation"), tokenizer, facts["sha256"], making.text.name)


def _split(file: BinaryIO, tokenizer: Tokenizer, count: Count) -> Split:
    """What was written to `file`, read-only and in place."""
    dtype = token_dtype(tokenizer)
    if isinstance(file, BytesIO):
        tokens: NDArray[np.unsignedinteger] = np.frombuffer(file.getbuffer(), dtype)
        tokens.flags.writeable = False
        return Split(tokens, *count)
    with file:  # The mapping outlives the file object.
        return Split(np.memmap(file, dtype, mode="r"), *count)


def _watched(pieces: Iterator[Piece], what: str, total: int, progress: Progress | None) -> Iterator[Piece]:
    return pieces if progress is None else _reported(pieces, what, total, progress)


def _reported(pieces: Iterator[Piece], what: str, total: int, progress: Progress) -> Iterator[Piece]:
    done = 0
    for piece in pieces:
        yield piece
        done += num_bytes(piece.text)
        progress(what, min(done, total), total)


def _named_tokenizer(spec: DataSpec) -> Tokenizer:
    path = Path(spec.tokenizer)
    if not path.exists():
        raise UserError(
            f"tokenizer {spec.tokenizer!r} is neither a kind nor a file", fix=nearest(spec.tokenizer, TOKENIZERS)
        )
    tokenizer = Tokenizer.load(path)
    if spec.vocab is not None and tokenizer.vocab > spec.vocab:
        raise UserError(
            f"tokenizer {spec.tokenizer!r} has {tokenizer.vocab} tokens, more than vocab {spec.vocab}",
            fix="leave vocab out: a tokenizer that is made already keeps its size",
        )
    return tokenizer


def token_dtype(tokenizer: Tokenizer) -> np.dtype[np.unsignedinteger]:
    return np.dtype(np.uint16 if tokenizer.vocab < 1 << 16 else np.uint32)


def write_tokens(
    pieces: Iterable[Piece], tokenizer: Tokenizer, *, file: BinaryIO, direction: Direction = "forward"
) -> Count:
    """Append the stream to an empty `file`. In reverse, each document is reversed; their order stays.

    A document without tokens is skipped, so there are never two ends in a row.
    """
    dtype = token_dtype(tokenizer)
    end = np.array([tokenizer.end_id], dtype).tobytes()
    text_bytes, unknown = 0, 0
    begin = stop = file.write(end) // dtype.itemsize
    # The last document has an end too, even if the text is cut off inside it.
    for (text, ends), ids in _encoded(chain(pieces, [Piece("", True)]), tokenizer):
        file.write(ids.astype(dtype).tobytes())
        stop += len(ids)
        text_bytes += num_bytes(text)
        if tokenizer.unknown_id is not None:
            unknown += int(np.count_nonzero(ids == tokenizer.unknown_id))
        if ends and stop > begin:
            if direction == "reverse":
                _reverse(file, begin, stop, dtype=dtype)
            file.write(end)
            begin = stop = stop + 1
    file.flush()
    return Count(text_bytes, unknown)


def _encoded(pieces: Iterable[Piece], tokenizer: Tokenizer) -> Iterator[tuple[Piece, NDArray[np.int64]]]:
    """Each piece with its ids; short documents are tokenised in groups."""
    group: list[Piece] = []
    waiting = 0
    for piece in pieces:
        group.append(piece)
        waiting += len(piece.text)
        if waiting >= _BLOCK:
            yield from zip(group, tokenizer.encode_many([text for text, _ in group]))
            group, waiting = [], 0
    yield from zip(group, tokenizer.encode_many([text for text, _ in group]))


def _reverse(file: BinaryIO, begin: int, stop: int, *, dtype: np.dtype[np.unsignedinteger]) -> None:
    """Reverse the tokens from `begin` to `stop` in place, swapping blocks from both ends."""
    size = dtype.itemsize
    while begin < stop:
        length = min(_BLOCK, (stop - begin + 1) // 2)
        sides = (begin * size, (stop - length) * size)
        blocks = []
        for side in sides:
            file.seek(side)
            blocks.append(np.frombuffer(file.read(length * size), dtype))
        for side, block in zip(sides, reversed(blocks)):
            file.seek(side)
            file.write(block[::-1].tobytes())
        begin, stop = begin + length, stop - length
    file.seek(0, 2)


def unigram_nats(train_counts_V: NDArray[np.int64], evaluated_tokens: NDArray[np.unsignedinteger]) -> float:
    """The unigram baseline: mean of -log p(token) over all tokens of the evaluated stream but the first.

    p = (count in train + 1) / (predictions in train + vocab), the add-one estimate of Laplace.
    """
    vocab = len(train_counts_V)
    evaluated_V = token_counts(evaluated_tokens, vocab)
    nats_V = -np.log((train_counts_V + 1) / (train_counts_V.sum() + vocab))
    return float(evaluated_V @ nats_V / evaluated_V.sum())


def token_counts(tokens: NDArray[np.unsignedinteger], vocab: int) -> NDArray[np.int64]:
    """Counts of each id as a target; in chunks, since `bincount` converts its input to int64."""
    counts_V = np.zeros(vocab, dtype=np.int64)
    for start in range(1, len(tokens), _CHUNK):
        counts_V += np.bincount(tokens[start : start + _CHUNK], minlength=vocab)
        release(tokens)
    return counts_V

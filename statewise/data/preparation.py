"""What a corpus is made of: its sources, its tokenizer, and where the held-out part begins."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from statewise.data.file import STDIN
from statewise.data.source import Source, measure, open_source
from statewise.data.text import PIECE, Piece, num_bytes
from statewise.data.token_stream import Progress
from statewise.data.tokenizer import Tokenizer
from statewise.specs import TOKENIZERS, DataSpec, UserError, nearest

_VERSION = 2  # of what is cached: 1 had each part in one file


class Sources(NamedTuple):
    """The texts of `spec`, and a tokenizer, if it is not to be learned from them."""

    spec: DataSpec
    text: Source
    held: Source | None
    tokenizer: Tokenizer | None

    @property
    def size(self) -> int:
        return self.text.size + (self.held.size if self.held else 0)

    def key(self, fingerprint: Callable[[Source], Any]) -> str:
        """Changes whenever the tokens could; `fingerprint` stands for the content of a source."""
        spec = self.spec
        tokenizer: Any = self.tokenizer.sha256 if self.tokenizer else [spec.tokenizer, spec.vocab]
        options = [_VERSION, PIECE, tokenizer, spec.held_out, self.text.separator, spec.direction]
        content = [fingerprint(source) if source else None for source in (self.text, self.held)]
        return hashlib.sha256(json.dumps([options, content]).encode()).hexdigest()


def open_sources(spec: DataSpec, *, tokenizer: Tokenizer | None, spool: Path | None) -> Sources:
    """Find the files; nothing is read yet."""
    if STDIN in spec.text and STDIN in spec.validation:
        raise UserError(
            "standard input '-' is both text and validation", fix="leave validation out, or name a file for it"
        )
    opened = partial(open_source, separator=spec.separator, text_column=spec.text_column, spool=spool)
    text, held = opened(spec.text), opened(spec.validation) if spec.validation else None
    if tokenizer is None and spec.tokenizer not in TOKENIZERS:
        tokenizer = _named_tokenizer(spec)
    return Sources(spec, text, held, tokenizer)


class Prepared(NamedTuple):
    """Sources with a tokenizer. The held-out part begins at byte `cut` of `total`; None: the sources name it."""

    sources: Sources
    tokenizer: Tokenizer
    cut: int | None
    total: int

    def pieces(self, part: str) -> Iterator[Piece]:
        text, held = self.sources.text, self.sources.held
        if self.cut is None:
            return (held if held and part == "validation" else text).pieces()
        return text.pieces(stop=self.cut) if part == "train" else text.pieces(start=self.cut)

    def size(self, part: str) -> int:
        """Bytes of a part; close to it, where they were not counted."""
        text, held = self.sources.text, self.sources.held
        if self.cut is None:
            return held.size if held and part == "validation" else text.size
        return self.cut if part == "train" else self.total - self.cut

    def refuse_changed(self, train_bytes: int, validation_bytes: int) -> None:
        if self.cut is not None and train_bytes + validation_bytes != self.total:
            raise UserError(
                f"{self.sources.text.name!r} changed while it was read", fix="run again when it is complete"
            )

    def refuse_tiny(self, part: str, tokens: int, bytes: int) -> None:
        """A part must have a token beside its two ends."""
        if tokens >= 3:
            return
        text, held, spec = self.sources.text, self.sources.held, self.sources.spec
        named = "training" if part == "train" else part
        if held:
            name = (text if part == "train" else held).name
            raise UserError(f"{name!r}, the {named} text, holds no token", fix="give it at least one word")
        share = min(spec.held_out, 1 - spec.held_out)
        raise UserError(
            f"{text.name!r} is too small to hold out {spec.held_out:.0%} of it: "
            f"of {self.total} bytes, the {named} part has {bytes} and no token",
            fix=f"give at least {math.ceil(2 / share)} bytes of text, or name a file as `validation`",
        )


class TextSize(NamedTuple):
    bytes: int
    sha256: str


def measured(sources: Sources, progress: Progress | None) -> TextSize:
    """The bytes of the text, by reading all of it, and the sha256 of it and of the text held out."""
    text, held = sources.text, sources.held
    total, sha256 = measure(watched(text.pieces(), "reading", text.size, progress))
    if not total:
        raise UserError(f"{text.name!r} holds no text", fix="name a file or a folder with UTF-8 text in it")
    if held:
        sha256 = hashlib.sha256((sha256 + measure(held.pieces()).sha256).encode()).hexdigest()
    return TextSize(total, sha256)


def prepared(sources: Sources, total: int, progress: Progress | None) -> Prepared:
    """With a tokenizer: the given one, or one that is learned from the training part."""
    spec, text, tokenizer = sources.spec, sources.text, sources.tokenizer
    cut = None if sources.held else int((1 - spec.held_out) * total)
    if tokenizer is None:
        part = text.pieces() if cut is None else text.pieces(stop=cut)
        pieces = watched(part, "learning the vocabulary", text.size if cut is None else cut, progress)
        tokenizer = Tokenizer.train(spec.tokenizer, (piece.text for piece in pieces), vocab=spec.vocab)
    return Prepared(sources, tokenizer, cut, total)


def watched(pieces: Iterator[Piece], what: str, total: int, progress: Progress | None) -> Iterator[Piece]:
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

"""A text as two token streams, training and held out: `[end] document [end] document ... [end]`."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.data.cache import Facts, default_folder, open_entry
from statewise.data.preparation import Prepared, Sources, measured, open_sources, prepared
from statewise.data.shard_build import checked_folder, write_shards
from statewise.data.shards import Folder, ShardedTokens, Tokens, is_sharded, open_shards, release
from statewise.data.source import Source, open_source
from statewise.data.token_stream import Block, Progress, reported, token_dtype, token_stream
from statewise.data.tokenizer import Tokenizer
from statewise.specs import DataSpec, UserError

# Larger texts, in bytes, are tokenised once, into shards on disk.
IN_MEMORY = 1 << 26

_CHUNK = 1 << 22


class Split(NamedTuple):
    """A stream of tokens, the UTF-8 bytes of its text, and the number of unknown tokens."""

    tokens: Tokens
    bytes: int
    unknown: int


class Corpus(NamedTuple):
    """`sha256` is that of the normalised text, documents joined by \\0; of a folder of shards, that of its index."""

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
    """Read, split and tokenise the text of `spec`; a large one is cached. A folder of shards is opened as it is.

    The tokenizer is trained on the training part, unless one is given or `spec` names a file.
    `progress(what, done, total)` is called with bytes.
    """
    if any(is_sharded(Path(name)) for name in (*spec.text, *spec.validation)):
        folder, shards, made = checked_folder(spec, tokenizer)
        return _of_shards(shards, made, shards.index.sha256, str(folder))
    sources = open_sources(spec, tokenizer=tokenizer, spool=spool)
    if sources.size > IN_MEMORY:
        return _cached(sources, cache or default_folder(), progress)
    size = measured(sources, progress)
    made_of = prepared(sources, size.bytes, progress)
    train, validation = (_in_memory(made_of, part, progress) for part in ("train", "validation"))
    made_of.refuse_changed(train.bytes, validation.bytes)
    for part, split in (("train", train), ("validation", validation)):
        made_of.refuse_tiny(part, len(split.tokens), split.bytes)
    return Corpus(train, validation, made_of.tokenizer, size.sha256, sources.text.name)


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
    for name in paths:
        if is_sharded(Path(name)):
            raise UserError(f"{name!r} holds tokens, and a text is read here", fix="name the text that it was made of")
    with tempfile.TemporaryDirectory() as temporary:
        spool = spool or Path(temporary, "stdin")
        source = open_source(paths, separator=spec.separator, text_column=spec.text_column, spool=spool)
        blocks = token_stream(source.pieces(), tokenizer, direction=spec.direction)
        split = _collected(reported(blocks, "tokenising", source.size, progress), tokenizer, on_disk=_is_large(source))
    if len(split.tokens) < 3:
        raise UserError(f"{source.name!r} holds no text", fix="name a file with at least one word in it")
    return split


def _is_large(source: Source) -> bool:
    return source.size > IN_MEMORY


def _in_memory(made_of: Prepared, part: str, progress: Progress | None) -> Split:
    blocks = token_stream(made_of.pieces(part), made_of.tokenizer, direction=made_of.sources.spec.direction)
    watched = reported(blocks, f"tokenising {part}", made_of.size(part), progress)
    return _collected(watched, made_of.tokenizer, on_disk=False)


def _collected(blocks: Iterator[Block], tokenizer: Tokenizer, *, on_disk: bool) -> Split:
    """A whole stream as one read-only array; a large one in an unnamed file, which is removed with its array."""
    dtype, size, unknown = token_dtype(tokenizer), 0, 0
    parts: list[NDArray[np.unsignedinteger]] = []
    with tempfile.TemporaryFile() as file:  # the mapping outlives the file object
        for block in blocks:
            if on_disk:
                file.write(block.tokens.tobytes())
            else:
                parts.append(block.tokens)
            size, unknown = size + block.bytes, unknown + block.unknown
        file.flush()
        tokens: NDArray[np.unsignedinteger] = np.memmap(file, dtype, mode="r") if on_disk else np.concatenate(parts)
    tokens.flags.writeable = False
    return Split(tokens, size, unknown)


def _cached(sources: Sources, folder: Path, progress: Progress | None) -> Corpus:
    def make(entry: Path) -> Facts:
        size = measured(sources, progress)
        write_shards(prepared(sources, size.bytes, progress), entry, progress=progress)
        return {"sha256": size.sha256}

    entry, facts = open_entry(sources.key(Source.fingerprint), folder=folder, make=make)
    tokenizer = sources.tokenizer or Tokenizer.load(entry / "tokenizer.json")
    return _of_shards(open_shards(entry), tokenizer, facts["sha256"], sources.text.name)


def _of_shards(shards: Folder, tokenizer: Tokenizer, sha256: str, name: str) -> Corpus:
    train, validation = (
        Split(tokens, part.bytes, part.unknown)
        for tokens, part in ((shards.train, shards.index.train), (shards.validation, shards.index.validation))
    )
    return Corpus(train, validation, tokenizer, sha256, name)


def unigram_nats(train_counts_V: NDArray[np.int64], evaluated_tokens: Tokens) -> float:
    """The unigram baseline: mean of -log p(token) over all tokens of the evaluated stream but the first.

    p = (count in train + 1) / (predictions in train + vocab), the add-one estimate of Laplace.
    """
    vocab = len(train_counts_V)
    evaluated_V = token_counts(evaluated_tokens, vocab)
    nats_V = -np.log((train_counts_V + 1) / (train_counts_V.sum() + vocab))
    return float(evaluated_V @ nats_V / evaluated_V.sum())


def token_counts(tokens: Tokens, vocab: int) -> NDArray[np.int64]:
    """Counts of each id as a target; in chunks, since `bincount` converts its input to int64."""
    if isinstance(tokens, ShardedTokens):
        return tokens.counts_V(vocab)
    counts_V = np.zeros(vocab, dtype=np.int64)
    for start in range(1, len(tokens), _CHUNK):
        counts_V += np.bincount(tokens[start : start + _CHUNK], minlength=vocab)
        release(tokens)
    return counts_V

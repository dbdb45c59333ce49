"""Train each kind of tokenizer on text: characters, bytes, words, byte-level BPE.

Special tokens are in the model's vocabulary but not among the library's added tokens, because those are searched for in
the text: a text that mentions `<end>` must not end.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from statewise.data.text import NEVER_APART, NO_SPACES, num_bytes, slices, unsegmented
from statewise.specs import UserError, from_json, nearest

END = "<end>"
UNKNOWN = "<unk>"
KINDS = ("char", "byte", "word", "wordpunct", "bpe")
WHOLE = "whole"
NUM_CODE_POINTS = 0x110000

_WORDS, _BPE_PIECES = 10_000, 2_048
# Of a larger text, words and BPE see the beginning: frequencies have settled by then.
_TRAINING_BYTES = 1 << 26
_TRAINING_SLICE = 1 << 17
_NOTED = 1 << 20


def train_backend(
    kind: str, texts: Iterable[str], *, vocab: int | None = None, lower: bool = False, min_count: int = 1
) -> Tokenizer:
    """A tokenizer of one of `KINDS`, or `WHOLE`, with at most `vocab` tokens, special ones included.

    With `lower`, capitals are written small before anything else is done. What occurs less than `min_count`
    times is unknown (in BPE: no piece of its own).
    """
    if min_count < 1:
        raise UserError(f"min_count {min_count} is too small", fix="1 keeps all tokens")
    small = normalizers.Lowercase() if lower else None
    match kind:
        case "char":
            limit = _limit(kind, vocab, least=3, default=None)
            seen = map(small.normalize_str, texts) if small else texts
            backend = char_backend(_frequent_characters(seen, limit, min_count))
        case "byte":
            _limit(kind, vocab, least=257, default=None)
            if min_count > 1:
                raise UserError(f"min_count {min_count}: no byte is ever unknown", fix="leave it out")
            backend = byte_backend()
        case "word":
            limit = _limit(kind, vocab, least=3, default=_WORDS)
            noted: list[str] = []
            backend = _train_words(_noting(texts, noted), limit, min_count, _between_spaces(), small)
            _refuse_sentences(noted)
            return backend
        case "wordpunct":
            limit = _limit(kind, vocab, least=3, default=_WORDS)
            return _train_words(texts, limit, min_count, _apart(), small, joined=True)
        case "whole":
            return _train_whole(texts, _limit(kind, vocab, least=3, default=_WORDS), min_count, small)
        case "bpe":
            return _train_bpe(texts, _limit(kind, vocab, least=257, default=_BPE_PIECES), min_count, small)
        case _:
            raise UserError(f"tokenizer {kind!r} is not known", fix=nearest(kind, KINDS))
    _normalise(backend, small)
    return backend


def char_backend(vocab: Mapping[str, int]) -> Tokenizer:
    """BPE without a single merge: each character stands for itself."""
    backend = Tokenizer(models.BPE(dict(vocab), [], unk_token=UNKNOWN))
    backend.decoder = decoders.Fuse()
    return backend


def byte_backend() -> Tokenizer:
    """Each byte of the UTF-8 is its own id."""
    vocab = {character: byte for byte, character in enumerate(_byte_characters())}
    backend = Tokenizer(models.BPE({**vocab, END: len(vocab)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


def _frequent_characters(texts: Iterable[str], limit: int, min_count: int) -> dict[str, int]:
    """The special tokens, then the most frequent characters in code point order."""
    counts = np.zeros(NUM_CODE_POINTS, dtype=np.int64)
    for text in texts:
        found = np.bincount(code_points(text))
        counts[: len(found)] += found
    seen = np.flatnonzero(counts >= min_count)
    kept = seen[np.argsort(-counts[seen], kind="stable")][: limit - 2]
    return {token: i for i, token in enumerate([END, UNKNOWN, *map(chr, sorted(kept))])}


def _between_spaces() -> pre_tokenizers.PreTokenizer:
    """Words between white space; a line's end is a word."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Split(Regex(r"[^\S\n]+"), "removed"),
            # A word that spells the special token is cut in two, or it would be looked up as one.
            pre_tokenizers.Split(Regex(f"{END[0]}(?={END[1:]})"), "isolated"),
        ]
    )


def _noting(texts: Iterable[str], noted: list[str]) -> Iterator[str]:
    """The texts, and in `noted` how they begin."""
    left = _NOTED
    for text in texts:
        if left > 0:
            noted.append(text[:left])
            left -= len(text)
        yield text


def _refuse_sentences(texts: Sequence[str]) -> None:
    """Where a script has no spaces, what stands between two is a sentence, and every new one would be unknown."""
    if sentence := unsegmented(texts):
        raise UserError(
            f"no spaces part the words of this script, and {sentence[:40]!r} would be one word",
            fix="put spaces there, or choose another tokenizer: wordpunct (each such character is a word), char or bpe",
        )


def _apart() -> pre_tokenizers.PreTokenizer:
    """Runs of letters, marks and digits, runs of anything else that shows, and line ends.

    Where a script has no spaces between its words, each character is one: a whole sentence would be unknown.
    """
    pieces = rf"[{NO_SPACES}]|[\w&&[^{NO_SPACES}]]+|[^\w\s]+|\n"
    return pre_tokenizers.Split(Regex(pieces), "removed", invert=True)


def _train_words(
    texts: Iterable[str],
    limit: int,
    min_count: int,
    pieces: pre_tokenizers.PreTokenizer,
    normalizer: normalizers.Normalizer | None,
    *,
    joined: bool = False,
) -> Tokenizer:
    """Text's own `<unk>` is as unknown as any rare word. `joined`: what was cut between two spaces is put together."""
    backend = Tokenizer(models.WordLevel({}, unk_token=UNKNOWN))
    _normalise(backend, normalizer)
    backend.pre_tokenizer = pieces
    # The first decoder puts a space before each word but the first, the others take it from lines.
    backend.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix=" ", cleanup=False),
            decoders.Fuse(),
            decoders.Replace(" \n", "\n"),
            decoders.Replace("\n ", "\n"),
            *([decoders.Replace(Regex(f"(?<={NEVER_APART}) (?={NEVER_APART})"), "")] if joined else []),
        ]
    )
    return _trained(backend, _word_trainer(limit, min_count), _beginning(texts))


def _train_whole(
    words: Iterable[str], limit: int, min_count: int, normalizer: normalizers.Normalizer | None
) -> Tokenizer:
    """Each word is a token, spaces in it and all: the most frequent, as the library's trainer orders them."""
    # A word that spells the special token becomes another one, or it would be looked up as that.
    kept_apart = normalizers.Replace(Regex(f"^{END}$"), f" {END}")
    whole = normalizers.Sequence([normalizer, kept_apart]) if normalizer else kept_apart
    counts: Counter[str] = Counter()
    for word, count in Counter(words).items():  # counted here, words by the million cost no more than a list of them
        counts[whole.normalize_str(word)] += count
    kept = (word for word, count in counts.items() if word and count >= min_count)
    frequent = sorted(kept, key=lambda word: (-counts[word], word))
    table = {word: i for i, word in enumerate([END, UNKNOWN, *frequent][:limit])}
    backend = Tokenizer(models.WordLevel(table, unk_token=UNKNOWN))
    _normalise(backend, whole)
    backend.decoder = decoders.WordPiece(prefix=" ", cleanup=False)
    return backend


def _word_trainer(limit: int, min_count: int) -> trainers.Trainer:
    return trainers.WordLevelTrainer(
        vocab_size=limit, min_frequency=min_count, special_tokens=[END, UNKNOWN], show_progress=False
    )


def _train_bpe(
    texts: Iterable[str], limit: int, min_count: int, normalizer: normalizers.Normalizer | None
) -> Tokenizer:
    """Merges of bytes, as in GPT-2: any text comes back exactly."""
    backend = Tokenizer(models.BPE())
    _normalise(backend, normalizer)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=limit,
        min_frequency=min_count if min_count > 1 else 0,  # 0, not 1: the library's own default
        special_tokens=[END],
        initial_alphabet=_byte_characters(),
        show_progress=False,
    )
    return _trained(backend, trainer, _beginning(texts))


def _normalise(backend: Tokenizer, normalizer: normalizers.Normalizer | None) -> None:
    if normalizer is not None:
        backend.normalizer = normalizer


def _trained(backend: Tokenizer, trainer: trainers.Trainer, texts: Iterable[str]) -> Tokenizer:
    backend.train_from_iterator(texts, trainer)
    table = from_json(backend.to_str())
    # The trainer adds the special tokens where text is searched for them; they stay in the model.
    return Tokenizer.from_str(json.dumps({**table, "added_tokens": []}))


def _beginning(texts: Iterable[str]) -> Iterator[str]:
    seen = 0
    for text in texts:
        yield from slices(text, length=_TRAINING_SLICE)
        seen += num_bytes(text)
        if seen >= _TRAINING_BYTES:
            return


def _byte_characters() -> list[str]:
    """GPT-2's printable character for each byte: itself, or one from 256 upwards."""
    printable = {
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    }
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _limit(kind: str, vocab: int | None, *, least: int, default: int | None) -> int:
    if vocab is not None and vocab < least:
        raise UserError(f"vocab {vocab} is too small for tokenizer {kind!r}", fix=f"at least {least}, or leave it out")
    return vocab or default or NUM_CODE_POINTS

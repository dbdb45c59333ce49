"""Train each kind of tokenizer on text: characters, bytes, words, byte-level BPE.

Special tokens are in the model's vocabulary but not among the library's added tokens, because those are searched for in
the text: a text that mentions `<end>` must not end.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from statewise.data.text import NEVER_SPACED, NO_SPACES, num_bytes, slices, unsegmented
from statewise.specs import TOKENIZERS, UserError, from_json, nearest

END = "<end>"
UNKNOWN = "<unk>"
WHOLE = "whole"  # for text that is already split into words: each text is a token
NUM_CODE_POINTS = 0x110000

_MAX_WORDS, _MAX_BPE_TOKENS = 10_000, 2_048  # unless `vocab` says otherwise
# Of a longer text, words and BPE are trained on the beginning: by then frequencies have converged.
_TRAINING_BYTES = 1 << 26
_TRAINING_SLICE = 1 << 17
_SAMPLE = 1 << 20  # characters in which to look for scripts without spaces


def train_backend(
    kind: str, texts: Iterable[str], *, vocab: int | None = None, lower: bool = False, min_count: int = 1
) -> Tokenizer:
    """A tokenizer of one of `TOKENIZERS`, or `WHOLE`, with at most `vocab` tokens, special ones included.

    With `lower`, text is lowercased first. What occurs less than `min_count` times is unknown (in BPE: no token of its
    own).
    """
    if min_count < 1:
        raise UserError(f"min_count {min_count} is too small", fix="1 keeps all tokens")
    lowercase = normalizers.Lowercase() if lower else None
    match kind:
        case "char":
            limit = _limit(kind, vocab, least=3, default=NUM_CODE_POINTS)
            normalised = map(lowercase.normalize_str, texts) if lowercase else texts
            backend = char_backend(_frequent_characters(normalised, limit, min_count))
        case "byte":
            _limit(kind, vocab, least=257, default=NUM_CODE_POINTS)
            if min_count > 1:
                raise UserError(f"min_count {min_count}: no byte is ever unknown", fix="leave it out")
            backend = byte_backend()
        case "word":
            limit = _limit(kind, vocab, least=3, default=_MAX_WORDS)
            sample: list[str] = []
            backend = _train_words(_sampled(texts, sample), limit, min_count, _split_at_spaces(), lowercase)
            _refuse_unsegmented(sample)
            return backend
        case "wordpunct":
            limit = _limit(kind, vocab, least=3, default=_MAX_WORDS)
            return _train_words(texts, limit, min_count, _split_punctuation(), lowercase, join_unspaced=True)
        case "whole":
            return _train_whole(texts, _limit(kind, vocab, least=3, default=_MAX_WORDS), min_count, lowercase)
        case "bpe":
            return _train_bpe(texts, _limit(kind, vocab, least=257, default=_MAX_BPE_TOKENS), min_count, lowercase)
        case _:
            raise UserError(f"tokenizer {kind!r} is not known", fix=nearest(kind, TOKENIZERS))
    _set_normalizer(backend, lowercase)
    return backend


def char_backend(vocab: Mapping[str, int]) -> Tokenizer:
    """Each character is a token: BPE without merges."""
    backend = Tokenizer(models.BPE(dict(vocab), [], unk_token=UNKNOWN))
    backend.decoder = decoders.Fuse()
    return backend


def byte_backend() -> Tokenizer:
    """Each byte of the UTF-8 is its own id."""
    vocab = {character: byte for byte, character in enumerate(byte_characters())}
    backend = Tokenizer(models.BPE({**vocab, END: len(vocab)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _frequent_characters(texts: Iterable[str], limit: int, min_count: int) -> dict[str, int]:
    """The special tokens, then the most frequent characters in code point order."""
    counts = np.zeros(NUM_CODE_POINTS, dtype=np.int64)
    for text in texts:
        in_text = np.bincount(np.frombuffer(text.encode("utf-32-le"), dtype="<u4"))
        counts[: len(in_text)] += in_text
    seen = np.flatnonzero(counts >= min_count)
    kept = seen[np.argsort(-counts[seen], kind="stable")][: limit - 2]
    return {token: i for i, token in enumerate([END, UNKNOWN, *map(chr, sorted(kept))])}


def _split_at_spaces() -> pre_tokenizers.PreTokenizer:
    """Words between white space; a line end is a word."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Split(Regex(r"[^\S\n]+"), "removed"),
            # A word that spells the special token is cut in two, or it would be looked up as one.
            pre_tokenizers.Split(Regex(f"{END[0]}(?={END[1:]})"), "isolated"),
        ]
    )


def _split_punctuation() -> pre_tokenizers.PreTokenizer:
    """Runs of letters, marks and digits, runs of any other visible characters, and line ends.

    In scripts without spaces each character is a word: a whole sentence would be unknown.
    """
    pieces = rf"[{NO_SPACES}]|[\w&&[^{NO_SPACES}]]+|[^\w\s]+|\n"
    return pre_tokenizers.Split(Regex(pieces), "removed", invert=True)


def _sampled(texts: Iterable[str], sample: list[str]) -> Iterator[str]:
    """The texts; the first `_SAMPLE` characters are added to `sample`."""
    left = _SAMPLE
    for text in texts:
        if left > 0:
            sample.append(text[:left])
            left -= len(text)
        yield text


def _refuse_unsegmented(texts: Sequence[str]) -> None:
    """In a script without spaces, the text between two spaces is a sentence, and every new one would be unknown."""
    if sentence := unsegmented(texts):
        raise UserError(
            f"no spaces part the words of this script, and {sentence[:40]!r} would be one word",
            fix="put spaces there, or choose another tokenizer: wordpunct (each such character is a word), char or bpe",
        )


def _train_words(
    texts: Iterable[str],
    limit: int,
    min_count: int,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    normalizer: normalizers.Normalizer | None,
    *,
    join_unspaced: bool = False,
) -> Tokenizer:
    """The text's own `<unk>` is as unknown as any rare word. `join_unspaced`: no spaces inside scripts without them."""
    backend = Tokenizer(models.WordLevel({}, unk_token=UNKNOWN))
    _set_normalizer(backend, normalizer)
    backend.pre_tokenizer = pre_tokenizer
    # The first decoder puts a space before each word but the first; the others remove it at line ends.
    backend.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix=" ", cleanup=False),
            decoders.Fuse(),
            decoders.Replace(" \n", "\n"),
            decoders.Replace("\n ", "\n"),
            *([decoders.Replace(Regex(f"(?<={NEVER_SPACED}) (?={NEVER_SPACED})"), "")] if join_unspaced else []),
        ]
    )
    trainer = trainers.WordLevelTrainer(
        vocab_size=limit, min_frequency=min_count, special_tokens=[END, UNKNOWN], show_progress=False
    )
    return _train(backend, trainer, texts)


def _train_whole(
    words: Iterable[str], limit: int, min_count: int, normalizer: normalizers.Normalizer | None
) -> Tokenizer:
    """Each word is a token, spaces included: the most frequent ones, ordered as the library's trainer does."""
    # A word that spells the special token becomes another one, or it would be looked up as that.
    escaped = normalizers.Replace(Regex(f"^{END}$"), f" {END}")
    whole = normalizers.Sequence([normalizer, escaped]) if normalizer else escaped
    counts: Counter[str] = Counter()
    for word, count in Counter(words).items():  # normalise each distinct word once
        counts[whole.normalize_str(word)] += count
    kept = (word for word, count in counts.items() if word and count >= min_count)
    frequent = sorted(kept, key=lambda word: (-counts[word], word))
    table = {word: i for i, word in enumerate([END, UNKNOWN, *frequent][:limit])}
    backend = Tokenizer(models.WordLevel(table, unk_token=UNKNOWN))
    _set_normalizer(backend, whole)
    backend.decoder = decoders.WordPiece(prefix=" ", cleanup=False)
    return backend


def _train_bpe(
    texts: Iterable[str], limit: int, min_count: int, normalizer: normalizers.Normalizer | None
) -> Tokenizer:
    """Byte-level merges, as in GPT-2: every text decodes to itself."""
    backend = Tokenizer(models.BPE())
    _set_normalizer(backend, normalizer)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=limit,
        min_frequency=min_count if min_count > 1 else 0,  # 0, not 1: the library's own default
        special_tokens=[END],
        initial_alphabet=byte_characters(),
        show_progress=False,
    )
    return _train(backend, trainer, texts)


def _set_normalizer(backend: Tokenizer, normalizer: normalizers.Normalizer | None) -> None:
    if normalizer is not None:
        backend.normalizer = normalizer


def _train(backend: Tokenizer, trainer: trainers.Trainer, texts: Iterable[str]) -> Tokenizer:
    """Train on the first `_TRAINING_BYTES` of the texts."""

    def beginning() -> Iterator[str]:
        seen = 0
        for text in texts:
            yield from slices(text, length=_TRAINING_SLICE)
            seen += num_bytes(text)
            if seen >= _TRAINING_BYTES:
                return

    backend.train_from_iterator(beginning(), trainer)
    table = from_json(backend.to_str())
    # The trainer also adds the special tokens where text is searched for them; keep them in the model only.
    return Tokenizer.from_str(json.dumps({**table, "added_tokens": []}))


def byte_characters() -> list[str]:
    """GPT-2's printable character for each byte: itself, or one from 256 upwards."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _limit(kind: str, vocab: int | None, *, least: int, default: int) -> int:
    if vocab is not None and vocab < least:
        raise UserError(f"vocab {vocab} is too small for tokenizer {kind!r}", fix=f"at least {least}, or leave it out")
    return vocab or default

"""Tokenizers that `statewise.runtime` reads by itself, against the library that trained them."""

import json
import random
import unicodedata
from collections.abc import Callable

import pytest
import tokenizers

from statewise import runtime
from statewise.data import Tokenizer

KINDS = ["char", "byte", "word", "wordpunct", "whole", "bpe"]
TRAINED = [
    "don't we'll <end> <unk> 12 34\n\n\t x² naïve café ½ ⅷ Ⓐ",
    "日本語のテスト 한국어 ไทย ελληνικά ΣΑΣ İ a\u00a0b\x85c",
]
# Where rules meet: spaces of every kind, marks, numbers that are no digits, scripts without spaces, special tokens.
LETTERS = (
    "aBz'sdtmlrev03 \n\t\r.,!?<end>_-éß½²⅕Ⅷ①Ⓐ🄰Σς日あア한ไก้၁० \u00a0\u2003\u3000\u0301\u200d\x1c\x01\x03\x85।Ａ！😀İǅ"
)


def both(kind: str, *, lower: bool) -> tuple[Tokenizer, Callable[[str], list[int]], Callable[[list[int]], str]]:
    texts = TRAINED if kind != "whole" else ["<end>", " <end>", *TRAINED[0].split(), *TRAINED]
    library = Tokenizer.train(kind, texts, lower=lower)
    return library, *runtime._without_library(json.loads(library.to_json()))


def compare(
    text: str, library: Tokenizer, encode: Callable[[str], list[int]], decode: Callable[[list[int]], str]
) -> None:
    ids = library.encode_with_library(text).tolist()
    assert encode(text) == ids, ascii(text)
    assert decode(ids) == library.decode(ids), ascii(text)
    assert decode(ids[1:-1]) == library.decode(ids[1:-1]), ascii(text)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_are_those_of_the_library(kind: str, lower: bool) -> None:
    made = both(kind, lower=lower)
    rng = random.Random(0)
    pieces = [*TRAINED, *TRAINED[0].split(" "), "<end>", " <end>", "don't", "'ll", "  ", " \n"]
    for text in [
        "",
        *pieces,
        *("".join(rng.choices([*LETTERS, *pieces[2:]], k=rng.randrange(30))) for _ in range(200)),
    ]:
        compare(text, *made)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wordpunct", "bpe", "word"])
def test_every_character_is_cut_as_by_the_library(kind: str) -> None:
    """Between letters, digits and signs. Those that Python's tables do not have yet may be cut elsewhere."""
    made = both(kind, lower=False)
    known = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    texts = [f"a{letter}{letter}1{letter}.{letter} " for letter in known]
    ids = [some.tolist() for some in made[0].encode_many(texts)]
    assert [letter for letter, text, some in zip(known, texts, ids) if made[1](text) != some] == []


def test_published_byte_pairs_are_read_as_they_are() -> None:
    """As in a GPT-2 folder: merges as texts, an added special token, a post-processor."""
    table = json.loads(Tokenizer.train("bpe", TRAINED).to_json())
    table["model"]["merges"] = [" ".join(pair) for pair in table["model"]["merges"]]
    end = len(table["model"]["vocab"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    table["added_tokens"] = [{"id": end, "content": "<|endoftext|>", **flags}]
    table["model"]["vocab"]["<|endoftext|>"] = end
    library = Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(table)))
    compare("we'll <|endoftext|> naïve", library, *runtime._without_library(table))
    assert runtime._without_library(table)[1]([end]) == ""


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "NFC"}},
        {"pre_tokenizer": {"type": "Metaspace"}},
        {"added_tokens": [{"id": 0, "content": "x", "special": False}]},
        {"model": {"type": "Unigram", "vocab": {}}},
        {"model": {"type": "BPE", "vocab": {}, "merges": [], "byte_fallback": True}},
    ],
    ids=str,
)
def test_others_need_the_library(change: dict[str, object]) -> None:
    table = json.loads(Tokenizer.train("bpe", TRAINED).to_json())
    with pytest.raises(ValueError, match="needs the library tokenizers"):
        runtime._without_library({**table, **change})

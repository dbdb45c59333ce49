"""Words and punctuation apart, small letters, rare words unknown, whole words."""

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.tokenize import wordpunct_tokenize
from tokenizers import Regex, models, normalizers, trainers

from statewise.data import Tokenizer
from statewise.data.tokenizer_training import train_backend
from statewise.specs import TOKENIZERS, UserError

TEXT = "Don't panic, said THE guide (twice): the end...\nthe\tΟΔΥΣΣΕΥΣ of Straße €5,99 <end> a_b\n"


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([i]) for i in tokenizer.encode(text)]


@settings(deadline=None)
@given(st.text(alphabet="abcXYZ019_ .,!?-'\"()<>€éßЖ한국\t"))
def test_wordpunct_is_nltks(text: str) -> None:
    tokenizer = Tokenizer.train("wordpunct", [text])
    assert words(tokenizer, text) == wordpunct_tokenize(text)


def test_wordpunct_keeps_marks_with_their_letters_and_line_ends_as_words() -> None:
    tokenizer = Tokenizer.train("wordpunct", ["हिन्दी भाषा।\nतमिழ்"])
    assert words(tokenizer, "हिन्दी भाषा।\nतमिழ்") == ["हिन्दी", "भाषा", "।", "\n", "तमिழ்"]


def test_wordpunct_takes_characters_where_no_spaces_part_words() -> None:
    text = "とても感動した2本。今天 good天气 ภาษาไทย"
    expected = [*"とても感動した", "2", *"本。今天", "good", *"天气ภาษาไทย"]
    assert words(Tokenizer.train("wordpunct", [text]), text) == expected


def test_the_share_of_unknown_tokens() -> None:
    tokenizer = Tokenizer.train("word", ["a b"])
    assert tokenizer.unknown_share([tokenizer.encode("a c"), tokenizer.encode("d b")]) == 0.5
    assert Tokenizer.train("byte", []).unknown_share([np.arange(3)]) == 0
    assert tokenizer.unknown_share([]) == 0


def test_special_tokens_are_never_found_in_text() -> None:
    for kind in ("wordpunct", "whole"):
        tokenizer = Tokenizer.train(kind, ["<end>", "<unk>", "<END>"] * 3, lower=True)
        assert tokenizer.end_id not in tokenizer.encode("<end>")
        assert tokenizer.end_id not in tokenizer.encode("<END>")


@pytest.mark.parametrize("kind", [*TOKENIZERS, "whole"])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("min_count", [1, 2])
def test_all_of_it_is_in_the_file(tmp_path: Path, kind: str, lower: bool, min_count: int) -> None:
    if kind == "byte" and min_count > 1:
        return
    tokenizer = Tokenizer.train(kind, [TEXT, TEXT.upper()], lower=lower, min_count=min_count)
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.sha256 == tokenizer.sha256
    for text in (TEXT, TEXT.upper(), "other WORDS"):
        assert np.array_equal(again.encode(text), tokenizer.encode(text))
        if lower:
            small = tokenizers.normalizers.Lowercase().normalize_str(text)
            assert np.array_equal(tokenizer.encode(text), tokenizer.encode(small))
            assert tokenizer.decode(tokenizer.encode(text)) in (small, tokenizer.decode(tokenizer.encode(small)))


def test_small_letters_are_known() -> None:
    for kind in ("char", "word", "wordpunct"):
        tokenizer = Tokenizer.train(kind, ["THE End"], lower=True)
        assert tokenizer.unknown_id not in tokenizer.encode("the eND")
        assert tokenizer.unknown_id in Tokenizer.train(kind, ["THE End"]).encode("the eND")


def test_rare_words_are_unknown() -> None:
    text = "a a a b b c"
    for kind, size in (("word", 4), ("wordpunct", 4), ("char", 5)):  # char: the space too
        tokenizer = Tokenizer.train(kind, [text], min_count=2)
        assert tokenizer.vocab == size
        assert tokenizer.encode("c").tolist() == [tokenizer.unknown_id]
        assert tokenizer.unknown_id not in tokenizer.encode("a b")
    assert Tokenizer.train("bpe", ["xyz xyz"], min_count=3).vocab == 257
    assert Tokenizer.train("bpe", ["xyz xyz"], min_count=2).vocab > 257
    assert Tokenizer.train("whole", ["New York", "New York", "Rome"], min_count=2).vocab == 3


def test_mistakes_are_refused() -> None:
    with pytest.raises(UserError, match="min_count 0 is too small"):
        Tokenizer.train("word", ["a"], min_count=0)
    with pytest.raises(UserError, match="no byte is ever unknown"):
        Tokenizer.train("byte", ["a"], min_count=2)


def test_whole_words_have_one_id_each() -> None:
    given_ = ["Đà Nẵng", "n't", "Đà Nẵng", "...", "<end>", "\u2028x"]
    tokenizer = Tokenizer.train("whole", given_)
    ids = tokenizer.encode_words([*given_, "Đà", "New  York"])
    assert len(ids) == 8
    assert len({*ids}) == 6
    assert ids[0] == ids[2]
    assert ids[6] == ids[7] == tokenizer.unknown_id
    assert tokenizer.encode_words([]).tolist() == []


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["a", "A", "b", "ab", "é", "<end>", "<unk>", "<END>", " <end>", "a b", "", "很"]), max_size=40
    ),
    st.integers(3, 8),
    st.integers(1, 3),
    st.booleans(),
)
def test_whole_words_are_counted_as_the_library_counts_them(
    given_words: list[str], limit: int, min_count: int, lower: bool
) -> None:
    kept_apart = normalizers.Replace(Regex("^<end>$"), " <end>")
    theirs = tokenizers.Tokenizer(models.WordLevel({}, unk_token="<unk>"))
    theirs.normalizer = normalizers.Sequence([normalizers.Lowercase(), kept_apart]) if lower else kept_apart
    trainer = trainers.WordLevelTrainer(
        vocab_size=limit, min_frequency=min_count, special_tokens=["<end>", "<unk>"], show_progress=False
    )
    theirs.train_from_iterator(given_words, trainer)
    mine = train_backend("whole", given_words, vocab=limit, min_count=min_count, lower=lower)
    assert json.loads(mine.to_str())["model"] == json.loads(theirs.to_str())["model"]
    assert json.loads(mine.to_str())["normalizer"] == json.loads(theirs.to_str())["normalizer"]

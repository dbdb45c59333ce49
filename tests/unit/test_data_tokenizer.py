"""Text comes back, special tokens are never found in it, and files open elsewhere."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors

from statewise.data import Tokenizer
from statewise.specs import TOKENIZERS, UserError

TRAINING = (
    "It's 3 o'clock: the quick brown fox <end> jumps\n\nover the lazy dog.\n"
    "e\u0301 é ñ, 日本語のテキスト \U0001f469\u200d\U0001f469\u200d\U0001f467 emoji! <unk> don't\t\u00a0x\n"
) * 3


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(request.param, [TRAINING])


@pytest.fixture(scope="module")
def char() -> Tokenizer:
    return Tokenizer.train("char", [TRAINING])


@given(st.text(alphabet=st.sampled_from(sorted(set(TRAINING)))))
def test_char_round_trips_known_characters(char: Tokenizer, text: str) -> None:
    assert char.decode(char.encode(text)) == text
    assert len(char.encode(text)) == len(text)


@pytest.mark.parametrize("kind", ["byte", "bpe"])
def test_byte_and_bpe_round_trip_any_text(kind: str) -> None:
    tokenizer = Tokenizer.train(kind, [TRAINING])

    @given(st.text())
    def check(text: str) -> None:
        assert tokenizer.decode(tokenizer.encode(text)) == text

    check()


def test_byte_ids_are_the_bytes() -> None:
    tokenizer = Tokenizer.train("byte", [])
    text = "".join(map(chr, range(1, 2000)))
    assert tokenizer.encode(text).tolist() == list(text.encode())
    assert (tokenizer.vocab, tokenizer.end_id, tokenizer.unknown_id) == (257, 256, None)


@pytest.mark.parametrize("kind", ["char", "byte"])
def test_table_equals_the_library(kind: str) -> None:
    tokenizer = Tokenizer.train(kind, [TRAINING])
    assert tokenizer._lookup is not None

    @given(st.text() | st.text(alphabet=st.sampled_from(sorted(set(TRAINING)))))
    def check(text: str) -> None:
        assert np.array_equal(tokenizer.encode(text), tokenizer.encode_with_library(text))

    check()


@pytest.mark.parametrize("kind", ["char", "byte"])
def test_table_is_much_faster(kind: str) -> None:
    tokenizer = Tokenizer.train(kind, [TRAINING])
    text = TRAINING * 2000

    def seconds(encode: object) -> float:
        start = time.perf_counter()
        assert callable(encode)
        encode(text)
        return time.perf_counter() - start

    fast = min(seconds(tokenizer.encode) for _ in range(5))
    # benchmarks/corpus.py prints the ratio; here, far enough below it not to depend on the machine.
    assert seconds(tokenizer.encode_with_library) > 5 * fast


def test_words_and_lines() -> None:
    tokenizer = Tokenizer.train("word", ["the cat  sat\non\tthe\u00a0mat .\n\n"])
    ids = tokenizer.encode("the dog sat\n\n on the mat .\n")
    assert ids[1] == tokenizer.unknown_id
    assert tokenizer.decode(ids) == "the <unk> sat\n\non the mat .\n"
    assert len(ids) == 10
    assert tokenizer.vocab == 2 + len({"the", "cat", "sat", "on", "mat", ".", "\n"})


def test_rare_ones_are_unknown() -> None:
    char = Tokenizer.train("char", ["aaaa", "bbbccd"], vocab=4)
    assert char.vocab == 4
    assert char.decode(char.encode("abcd")) == "ab<unk><unk>"
    word = Tokenizer.train("word", ["a a a b b c"], vocab=4)
    assert word.vocab == 4
    assert word.decode(word.encode("a b c")) == "a b <unk>"
    assert Tokenizer.train("bpe", [TRAINING], vocab=300).vocab == 300


@pytest.mark.parametrize(("kind", "vocab"), [("char", 2), ("word", 2), ("bpe", 256), ("byte", 256)])
def test_vocabulary_too_small(kind: str, vocab: int) -> None:
    with pytest.raises(UserError, match=rf"vocab {vocab} is too small for tokenizer '{kind}'\nat least {vocab + 1}"):
        Tokenizer.train(kind, ["abc"], vocab=vocab)


def test_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'char'"):
        Tokenizer.train("chat", [])


def test_special_tokens_are_not_found_in_text(tokenizer: Tokenizer) -> None:
    for text in ("<end>", "a <end> b", "x<end><end>", "the\n<end>\nfox"):
        ids = tokenizer.encode(text)
        assert tokenizer.end_id not in ids
        assert "end>" in tokenizer.decode(ids).replace("<unk> ", "<").replace("end >", "end>")
    assert tokenizer.decode([tokenizer.end_id, *tokenizer.encode("the fox"), tokenizer.end_id]) == "the fox"


def test_training_depends_on_the_text_alone(tokenizer: Tokenizer) -> None:
    kind = next(kind for kind in TOKENIZERS if Tokenizer.train(kind, [TRAINING]).sha256 == tokenizer.sha256)
    lines = TRAINING.splitlines(keepends=True)
    assert Tokenizer.train(kind, lines).sha256 == Tokenizer.train(kind, reversed(lines)).sha256


def test_long_text_in_slices_equals_one_call(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statewise.data.tokenizer._SLICE", 64)
    plain = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    text = TRAINING + "\n\n\n  indented\n \n\tmore   spaces   \n\n" * 10
    assert tokenizer.encode_with_library(text).tolist() == plain.encode(text).ids


def test_saved_file_opens_in_the_library_alone(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    plain, again = tokenizers.Tokenizer.from_file(str(path)), Tokenizer.load(path)
    for text in (TRAINING, "unseen ÿ <end> words <unk>\n", ""):
        ids = tokenizer.encode(text).tolist()
        assert plain.encode(text).ids == again.encode(text).tolist() == ids
        assert plain.decode(ids) == again.decode(ids) == tokenizer.decode(ids)
    names = ("vocab", "end_id", "unknown_id", "sha256")
    assert [getattr(again, name) for name in names] == [getattr(tokenizer, name) for name in names]
    assert (again._lookup is None) == (tokenizer._lookup is None)


def foreign(*special: str) -> tokenizers.Tokenizer:
    """A tokenizer as others ship them: padded, truncated, and with a start token put before."""
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["<s>", *special])
    backend.enable_truncation(2)
    backend.enable_padding(length=8, pad_id=1, pad_token="b")
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 3)])
    return backend


@pytest.mark.parametrize("special", ["<|endoftext|>", "</s>", "<end>", None])
def test_foreign_tokenizer_finds_its_end(special: str | None, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    foreign(*([special] if special else [])).save(str(path))
    tokenizer = Tokenizer.load(path)
    assert (tokenizer.end_id, tokenizer.vocab, tokenizer.unknown_id) == (4, 5, 2)
    assert tokenizer.encode(f"a b a zz {special or '<end>'}").tolist() == [0, 1, 0, 2, 2]
    assert tokenizer.decode([4, 0, 1, 4]) == "a b"
    again = tmp_path / "again.json"
    tokenizer.save(again)
    assert Tokenizer.load(again).sha256 == tokenizer.sha256


def test_a_tokenizer_that_only_looks_like_ours_gets_no_table() -> None:
    backend = tokenizers.Tokenizer.from_str(Tokenizer.train("char", ["abc"]).to_json())
    backend.normalizer = tokenizers.normalizers.Lowercase()
    assert Tokenizer(backend).encode("ABC").tolist() == [2, 3, 4]


def wordlevel(vocab: dict[str, int]) -> str:
    backend = tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    backend.decoder = decoders.Fuse()
    table = json.loads(backend.to_str())
    return json.dumps({**table, "model": {**table["model"], "vocab": vocab}})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"null",
        b"[1, 2]",
        b"\x80\x04\x95 pickle",
        b'{"version": "1.0", "model": {"type": "Evil"}}',
        b"[" * 100_000,
        wordlevel({"a": 4_000_000_000}).encode(),
        wordlevel({"a": -1}).encode(),
        wordlevel({"a": 0, "b": 0}).encode(),
        wordlevel({}).encode()[:-20],
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        Tokenizer.load(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    whole = Tokenizer.train("bpe", [TRAINING], vocab=270).to_json()
    for length in range(0, len(whole) - 1, 97):
        path.write_text(whole[:length])
        with pytest.raises(UserError):
            Tokenizer.load(path)


def test_missing_folder_and_huge_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        Tokenizer.load(tmp_path / "none.json")
    with pytest.raises(UserError, match="cannot be read"):
        Tokenizer.load(tmp_path)
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UserError, match="more than 67,108,864 bytes"):
        Tokenizer.load(tmp_path / "huge.json")


def test_half_a_character_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match="half a character at index 1"):
        tokenizer.encode("a\ud83d")


def test_words_of_a_script_without_spaces_are_refused() -> None:
    sentences = ["我昨天在圖書館看了一本書，", "今天下雨所以我沒有出門去，", "明天我們一起去看電影好嗎？"]
    with pytest.raises(UserError, match="no spaces part the words of this script, and '明天我們一起") as caught:
        Tokenizer.train("word", ["\n".join(sentences)])
    assert "wordpunct" in str(caught.value)
    apart = Tokenizer.train("word", [" ".join(["我", "昨天", "在", "圖書館", "看", "了", "一", "本", "書"])])
    assert len(apart.encode("我 看 書")) == 3
    assert apart.unknown_id not in apart.encode("我 看 書")

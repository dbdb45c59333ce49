"""From what a spec names to two token streams, in memory or in a cache that is never trusted blindly."""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statewise.data import Corpus, Tokenizer, encode_files, open_corpus
from statewise.data.cache import _seal
from statewise.data.shards import ShardedTokens
from statewise.data.source import open_source
from statewise.data.text import PIECE, Piece
from statewise.data.token_stream import token_stream
from statewise.specs import DataSpec, UserError

ASCII = "".join(f"line {number}: the cat sat on mat {number * 7919 % 101}\n" for number in range(400))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(ASCII)
    return tmp_path / "text.txt"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything counts as large, and is read in many pieces."""
    monkeypatch.setattr("statewise.data.corpus.IN_MEMORY", 0)
    monkeypatch.setattr(
        "statewise.data.source.Source.pieces.__kwdefaults__", {"start": 0, "stop": 1 << 40, "piece": 300}
    )


def documents(tokens: np.ndarray, tokenizer: Tokenizer) -> list[str]:
    """The text between ends, after checking where ends stand."""
    ends = np.flatnonzero(tokens == tokenizer.end_id)
    assert ends[0] == 0
    assert ends[-1] == len(tokens) - 1
    assert (np.diff(ends) > 1).all()
    return [tokenizer.decode(tokens[a + 1 : b]) for a, b in pairwise(ends)]


def same(one: Corpus, other: Corpus) -> bool:
    return (
        np.array_equal(one.train.tokens, other.train.tokens)
        and np.array_equal(one.validation.tokens, other.validation.tokens)
        and (one.train[1:], one.validation[1:]) == (other.train[1:], other.validation[1:])
        and (one.tokenizer.sha256, one.sha256, one.name) == (other.tokenizer.sha256, other.sha256, other.name)
    )


@pytest.mark.parametrize("held_out", [0.1, 0.3, 0.5, 0.07])
def test_split_of_ascii_is_the_plain_slice(path: Path, held_out: float) -> None:
    corpus = open_corpus(DataSpec(text=str(path), held_out=held_out))
    cut = int((1 - held_out) * len(ASCII))
    assert documents(corpus.train.tokens, corpus.tokenizer) == [ASCII[:cut]]
    assert documents(corpus.validation.tokens, corpus.tokenizer) == [ASCII[cut:]]
    assert (corpus.train.bytes, corpus.validation.bytes) == (cut, len(ASCII) - cut)
    assert corpus.train.tokens.dtype == np.uint16
    assert not corpus.train.tokens.flags.writeable


def test_vocabulary_comes_from_the_training_part_alone(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("a" * 90 + "bé" * 5)
    corpus = open_corpus(DataSpec(text=str(tmp_path / "t"), held_out=0.15))
    assert corpus.tokenizer.vocab == 3
    assert (corpus.train.unknown, corpus.validation.unknown) == (0, 10)
    assert corpus.validation.bytes == 16


def test_files_and_separators_are_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\n###two######")
    (tmp_path / "b.txt").write_text("")
    (tmp_path / "c.txt").write_text("three\n" + "x" * 20)
    corpus = open_corpus(DataSpec(text=str(tmp_path), separator="###", held_out=0.2, tokenizer="byte"))
    assert documents(corpus.train.tokens, corpus.tokenizer) == ["one\n", "two", "three\n" + "x" * 13]
    assert documents(corpus.validation.tokens, corpus.tokenizer) == ["x" * 7]


def test_validation_files_stand_alone(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("abab")
    (tmp_path / "v").write_text("bcba")
    corpus = open_corpus(DataSpec(text=str(tmp_path / "t"), validation=str(tmp_path / "v")))
    assert documents(corpus.train.tokens, corpus.tokenizer) == ["abab"]
    assert documents(corpus.validation.tokens, corpus.tokenizer) == ["b<unk>ba"]
    (tmp_path / "v").write_text("bbba")
    assert open_corpus(DataSpec(text=str(tmp_path / "t"), validation=str(tmp_path / "v"))).sha256 != corpus.sha256


@pytest.mark.parametrize("kind", ["char", "byte", "word", "bpe"])
def test_reverse_turns_each_document_round(tmp_path: Path, kind: str) -> None:
    for name, text in {"a": "first text\nof all", "b": "second", "c": "third one here " * 9}.items():
        (tmp_path / name).write_text(text)
    forward = open_corpus(DataSpec(text=str(tmp_path), tokenizer=kind))
    backward = open_corpus(DataSpec(text=str(tmp_path), tokenizer=kind, direction="reverse"))
    assert forward.tokenizer.sha256 == backward.tokenizer.sha256
    end = forward.tokenizer.end_id
    for one, other in zip(forward[:2], backward[:2]):
        ends = np.flatnonzero(one.tokens == end)
        assert np.array_equal(ends, np.flatnonzero(other.tokens == end))
        for a, b in pairwise(ends):
            assert np.array_equal(one.tokens[a + 1 : b][::-1], other.tokens[a + 1 : b])


@given(st.lists(st.tuples(st.text(alphabet="abc", max_size=30), st.booleans()), max_size=12), st.integers(1, 9))
def test_reverse_in_blocks_over_many_pieces(parts: list[tuple[str, bool]], block: int) -> None:
    tokenizer = Tokenizer.train("byte", [])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("statewise.data.token_stream._GROUP", block)
        patch.setattr("statewise.data.token_stream._HELD", 2 * block)
        blocks = list(token_stream([Piece(*part) for part in parts], tokenizer, direction="reverse"))
    whole = "".join(text + "|" * ends for text, ends in parts)
    tokens = np.concatenate([block.tokens for block in blocks])
    expected = [document[::-1] for document in whole.split("|") if document]
    assert documents(tokens, tokenizer) == expected if expected else tokens.tolist() == [tokenizer.end_id]


def test_embedded_corpus_is_the_default() -> None:
    corpus = open_corpus(DataSpec())
    assert corpus.name == "pydoc_data.topics"
    assert len(corpus.train.tokens) > 100_000
    assert corpus.train.unknown == 0


def test_standard_input_is_spooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(ASCII.encode())))
    one = open_corpus(DataSpec(text="-"), spool=tmp_path / "stdin.txt")
    assert same(one, open_corpus(DataSpec(text="-"), spool=tmp_path / "stdin.txt", tokenizer=one.tokenizer))
    with pytest.raises(UserError, match="both text and validation"):
        open_corpus(DataSpec(text="-", validation="-"), spool=tmp_path / "stdin.txt")


def test_encode_files(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.train("char", [ASCII[:-1]])
    split = encode_files([str(path)], tokenizer)
    assert documents(split.tokens, tokenizer) == [ASCII]
    assert (split.bytes, split.unknown) == (len(ASCII), 0)
    with monkeypatch.context() as patch:
        patch.setattr("statewise.data.corpus.IN_MEMORY", 0)
        mapped = encode_files([str(path)], tokenizer)
    assert isinstance(mapped.tokens, np.memmap)
    assert np.array_equal(mapped.tokens, split.tokens)
    reverse = encode_files([str(path)], tokenizer, spec=DataSpec(direction="reverse", separator="\n"))
    assert documents(reverse.tokens, tokenizer) == [line[::-1] for line in ASCII.splitlines()]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("liné".encode())))
    piped = encode_files(["-"], tokenizer)
    assert (piped.bytes, piped.unknown) == (5, 1)
    (tmp_path / "blank").write_text(" \t")
    with pytest.raises(UserError, match="holds no text"):
        encode_files([str(tmp_path / "blank")], Tokenizer.train("word", ["a"]))


def test_tokenizer_can_be_a_file(path: Path, tmp_path: Path) -> None:
    Tokenizer.train("bpe", [ASCII], vocab=300).save(tmp_path / "tokenizer.json")
    spec = DataSpec(text=str(path), tokenizer=str(tmp_path / "tokenizer.json"))
    assert open_corpus(spec).tokenizer.vocab == 300
    with pytest.raises(UserError, match="has 300 tokens, more than vocab 200"):
        open_corpus(spec.model_copy(update={"vocab": 200}))
    with pytest.raises(UserError, match=r"neither a kind nor a file\ndid you mean 'word'"):
        open_corpus(DataSpec(text=str(path), tokenizer="wrod"))


@pytest.mark.parametrize("text", ["", "\ufeff"])
def test_nothing_to_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(UserError, match="holds no text"):
        open_corpus(DataSpec(text=str(tmp_path / "t")))


@pytest.mark.parametrize(("text", "tokenizer"), [("x", "char"), ("日", "char"), ("one two  " + " " * 90, "word")])
def test_too_little_to_hold_out(tmp_path: Path, text: str, tokenizer: str) -> None:
    (tmp_path / "t").write_text(text)
    with pytest.raises(UserError, match=r"too small to hold out 10%(.|\n)*at least 20 bytes"):
        open_corpus(DataSpec(text=str(tmp_path / "t"), tokenizer=tokenizer))


def test_blank_validation_is_named(path: Path, tmp_path: Path) -> None:
    (tmp_path / "v").write_text("\t \t")
    with pytest.raises(UserError, match="the validation text, holds no token"):
        open_corpus(DataSpec(text=str(path), validation=str(tmp_path / "v"), tokenizer="word"))


def test_a_text_that_changes_while_it_is_read(path: Path) -> None:
    def grow(what: str, done: int, total: int) -> None:
        if what == "learning the vocabulary":
            path.write_text(ASCII + "more")

    with pytest.raises(UserError, match="changed while it was read"):
        open_corpus(DataSpec(text=str(path)), progress=grow)


def test_progress_is_in_bytes_and_gets_there(path: Path) -> None:
    heard: dict[str, list[tuple[int, int]]] = {}
    open_corpus(
        DataSpec(text=str(path)), progress=lambda what, done, total: heard.setdefault(what, []).append((done, total))
    )
    assert list(heard) == ["reading", "learning the vocabulary", "tokenising train", "tokenising validation"]
    assert all(calls[-1][0] == calls[-1][1] > 0 for calls in heard.values())


@pytest.mark.parametrize("kind", ["char", "byte", "word", "bpe"])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_cached_corpus_equals_the_one_in_memory(
    path: Path, tmp_path: Path, kind: str, direction: str, request: pytest.FixtureRequest
) -> None:
    spec = DataSpec(text=str(path), tokenizer=kind, direction=direction, separator="9:")
    small = open_corpus(spec)
    request.getfixturevalue("large")
    made, found = (open_corpus(spec, cache=tmp_path / "cache") for _ in range(2))
    assert isinstance(found.train.tokens, ShardedTokens)
    assert same(made, small)
    assert same(found, small)
    assert len(os.listdir(tmp_path / "cache")) == 1


class TestCache:
    @pytest.fixture(autouse=True)
    def _made(self, large: None, path: Path, tmp_path: Path) -> Iterator[None]:
        self.spec, self.cache, self.path = DataSpec(text=str(path)), tmp_path / "cache", path
        made = open_corpus(self.spec, cache=self.cache)
        # Copied, because the tests damage the files it is mapped from.
        parts = [split._replace(tokens=np.array(split.tokens)) for split in made[:2]]
        self.first = made._replace(train=parts[0], validation=parts[1])
        (self.entry,) = self.cache.iterdir()
        yield
        assert not list(self.cache.glob("unfinished-*"))

    def opened(self) -> tuple[Corpus, bool]:
        """The corpus, and whether it had to be made again."""
        heard: list[str] = []
        corpus = open_corpus(self.spec, cache=self.cache, progress=lambda what, done, total: heard.append(what))
        return corpus, bool(heard)

    def test_second_opening_reads_no_text(self) -> None:
        corpus, again = self.opened()
        assert not again
        assert same(corpus, self.first)

    @pytest.mark.parametrize(
        "name", ["train-00000.tokens", "validation-00000.tokens", "index.json", "tokenizer.json", "manifest.json"]
    )
    @pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "empty", "folder"])
    def test_damage_is_found_and_mended(self, name: str, damage: str) -> None:
        file = self.entry / name
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 4
        match damage:
            case "truncate":
                os.truncate(file, len(data) - 2)
            case "flip":
                file.write_bytes(data)
            case "empty":
                file.write_bytes(b"")
            case _:
                file.unlink()
        if damage == "folder":
            file.mkdir()
        corpus, again = self.opened()
        assert again
        assert same(corpus, self.first)
        assert not self.opened()[1]

    def test_entry_replaced_by_a_file(self) -> None:
        for file in self.entry.iterdir():
            file.unlink()
        self.entry.rmdir()
        self.entry.write_text("not a folder")
        assert self.opened()[1]
        assert not self.opened()[1]

    def test_key_follows_content_and_options(self, tmp_path: Path) -> None:
        self.path.write_text(ASCII.replace("cat", "dog"))
        open_corpus(self.spec, cache=self.cache)
        for change in ({"held_out": 0.2}, {"vocab": 20}, {"direction": "reverse"}, {"separator": "\n"}):
            open_corpus(self.spec.model_copy(update=change), cache=self.cache)
        open_corpus(self.spec, cache=self.cache, tokenizer=Tokenizer.train("byte", []))
        assert len(os.listdir(self.cache)) == 7

    def test_an_entry_of_an_older_format_is_not_taken(self) -> None:
        """Its key was the same but for its number, and its files are as they were written."""
        shutil.rmtree(self.entry)
        key = [[1, PIECE, ["char", None], 0.1, None, "forward"], [open_source([str(self.path)]).fingerprint(), None]]
        older = self.cache / hashlib.sha256(json.dumps(key).encode()).hexdigest()
        older.mkdir()
        (older / "train").write_bytes(b"\1\0\2\0")
        _seal(older, {"sha256": "", "counts": {"train": [2, 0]}})
        corpus, again = self.opened()
        assert again
        assert same(corpus, self.first)

    def test_many_at_once_agree(self) -> None:
        (self.entry / "train-00000.tokens").unlink()
        with ThreadPoolExecutor(8) as pool:
            corpora = list(pool.map(lambda _: open_corpus(self.spec, cache=self.cache), range(8)))
        assert all(same(corpus, self.first) for corpus in corpora)

    def test_a_failed_making_leaves_nothing(self) -> None:
        self.path.write_bytes(ASCII.encode() + b"\xff")
        with pytest.raises(UserError, match=f"byte offset {len(ASCII)}"):
            open_corpus(self.spec, cache=self.cache)
        assert list(self.cache.iterdir()) == [self.entry]

    def test_litter_of_killed_processes_is_swept(self) -> None:
        old, new = self.cache / "unfinished-old", self.cache / "unfinished-new"
        for folder in (old, new):
            folder.mkdir()
            (folder / "train").write_text("x")
        for file in (old / "train", old):
            os.utime(file, (1, 1))
        (self.entry / "train-00000.tokens").unlink()
        self.opened()
        assert not old.exists()
        assert new.exists()
        (new / "train").unlink()
        new.rmdir()

    def test_cache_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(UserError, match=r"cannot be written(.|\n)*XDG_CACHE_HOME"):
            open_corpus(self.spec, cache=tmp_path / "file" / "cache")

    def test_default_folder_follows_the_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        open_corpus(self.spec)
        assert len(os.listdir(tmp_path / "xdg" / "statewise")) == 1

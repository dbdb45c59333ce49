"""Where text comes from, and that its pieces are the text."""

import hashlib
import io
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statewise.data import read_trees
from statewise.data.lines import temporary_file
from statewise.data.source import EMBEDDED, measure, open_source
from statewise.data.text import Piece, num_bytes, slices
from statewise.specs import UserError

TEXT = st.text(alphabet=st.sampled_from("ab \n\r\ufeffé日😀<|>"), max_size=40)
PIECES = st.integers(1, 7)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("source") / "text.txt"


def normalised(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def documents(pieces: list[Piece]) -> list[str]:
    found, text = [], ""
    for piece in pieces:
        text += piece.text
        if piece.ends:
            found, text = [*found, text], ""
    return [document for document in [*found, text] if document]


def read(*paths: Path, separator: str | None = None, piece: int = 1 << 20) -> list[str]:
    return documents(list(open_source([str(path) for path in paths], separator=separator).pieces(piece=piece)))


@given(text=TEXT.filter(bool), piece=PIECES)
def test_pieces_are_the_normalised_text(file: Path, text: str, piece: int) -> None:
    file.write_bytes(text.encode())
    assert "".join(read(file, piece=piece)) == normalised(text)


@given(text=TEXT.filter(bool), piece=PIECES, separator=st.sampled_from(["<|>", "aa", "\n\n", "\r\n", "é"]))
def test_separators_cut_as_str_split_does(file: Path, text: str, piece: int, separator: str) -> None:
    file.write_bytes(text.encode())
    expected = [part for part in normalised(text).split(normalised(separator)) if part]
    assert read(file, separator=separator, piece=piece) == expected


@given(text=TEXT.filter(bool), piece=PIECES, cut=st.integers(0, 60))
def test_a_part_starts_where_the_other_stops(file: Path, text: str, piece: int, cut: int) -> None:
    file.write_bytes(text.encode())
    source, whole = open_source([str(file)], separator="<|>"), normalised(text).replace("<|>", "")
    before = "".join(piece.text for piece in source.pieces(stop=cut, piece=piece))
    after = "".join(piece.text for piece in source.pieces(start=cut, piece=piece))
    assert before + after == whole
    if whole.isascii():
        assert before == whole[:cut]
    else:
        assert num_bytes(before) >= min(cut, num_bytes(whole))
        assert num_bytes(before[:-1]) < max(cut, 1)


def test_a_part_that_starts_at_a_documents_end_has_no_empty_document(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name * 5)
    source = open_source([str(tmp_path)])
    assert documents(list(source.pieces(stop=5))) == ["aaaaa"]
    assert next(source.pieces(start=5)) == Piece("bbbbb", False)
    assert documents(list(source.pieces(start=3))) == ["aa", "bbbbb"]


@given(st.lists(st.text(alphabet="abcdé'.", min_size=1, max_size=6), min_size=1, max_size=30), st.data())
def test_slices_cut_only_before_white_space(words: list[str], data: st.DataObject) -> None:
    text = "".join(word + data.draw(st.sampled_from([" ", "\n", "  ", "\n\n"])) for word in words)
    parts = list(slices(text, length=16))
    assert "".join(parts) == text
    assert all(part[0].isspace() and not before[-1].isspace() for before, part in pairwise(parts))


def test_pieces_prefer_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("one two\nthree four\nfive six\n" * 100)
    pieces = list(open_source([str(path)]).pieces(piece=100))
    assert len(pieces) > 10
    assert all(piece.text.startswith("\n") for piece in pieces[1:] if piece.text)


def test_one_enormous_line_is_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "line.txt"
    path.write_text("é" * 5000)
    pieces = [piece.text for piece in open_source([str(path)]).pieces(piece=101)]
    assert "".join(pieces) == "é" * 5000
    assert max(map(len, pieces)) <= 101


def test_folder_is_read_in_order_without_hidden_or_outside_files(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for name, text in {"b.txt": "B", "a/z.txt": "Z", "a.txt": "A", ".hidden": "H", ".git/x": "X"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (tmp_path / "outside.txt").write_text("O")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "e.txt").write_text("E")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "within.txt").symlink_to(folder / "b.txt")
    (folder / "broken.txt").symlink_to(folder / "nothing")
    assert read(folder) == ["A", "Z", "B", "B"]


def test_several_files_keep_the_order_given(tmp_path: Path) -> None:
    for name in "xyz":
        (tmp_path / name).write_text(name)
    (tmp_path / "y").write_text("")
    assert read(tmp_path / "z", tmp_path / "y", tmp_path / "x") == ["z", "x"]


def test_measure_of_one_file_is_its_sha256(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("abc é\n" * 1000)
    data = path.read_bytes()
    source = open_source([str(path)])
    assert measure(source.pieces(piece=7)) == (len(data), hashlib.sha256(data).hexdigest())
    both = measure(open_source([str(path), str(path)]).pieces())
    assert both == (2 * len(data), hashlib.sha256(data + b"\0" + data).hexdigest())


def test_embedded_corpus_is_pythons_own_topics() -> None:
    from pydoc_data.topics import topics

    source = open_source([])
    assert source.name == EMBEDDED
    assert documents(list(source.pieces())) == [topics[key] for key in sorted(topics)]


def test_fingerprint_tells_content_and_borders(tmp_path: Path) -> None:
    prints = set()
    for number, texts in enumerate([("ab", "c"), ("a", "bc"), ("abc", ""), ("ab", "d")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, text in zip("xy", texts):
            (folder / name).write_text(text)
        prints.add(open_source([str(folder)]).fingerprint())
    assert len(prints) == 4


def test_standard_input_is_kept_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = tmp_path / "run" / "stdin.txt"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("né\r\n".encode())))
    source = open_source(["-"], spool=spool)
    assert documents(list(source.pieces())) == documents(list(source.pieces())) == ["né\n"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert documents(list(open_source(["-"], spool=spool).pieces())) == ["né\n"]
    assert os.listdir(spool.parent) == ["stdin.txt"]


def test_empty_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(UserError, match="holds no text"):
        open_source(["-"], spool=tmp_path / "stdin.txt")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"later")))
    assert documents(list(open_source(["-"], spool=tmp_path / "stdin.txt").pieces())) == ["later"]
    with pytest.raises(UserError, match="twice"):
        open_source(["-", "-"], spool=tmp_path / "stdin.txt")
    with pytest.raises(UserError, match="read twice"):
        open_source(["-"])


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"abc\xff def", "byte offset 3 holds 0xff"),
        ("日本".encode() + b"\xe6\x97", "byte offset 6 holds 0xe6"),
        ("日".encode() + b"\xe6a", "byte offset 3 holds 0xe6"),
        (b"\xef\xbb\xbfab\r\n\xc3(", "byte offset 7 holds 0xc3"),
        (b"\xed\xa0\x80", "byte offset 0 holds 0xed"),
        (b"PNG\r\n\0\1", "binary file, not text: byte offset 5"),
    ],
)
def test_what_is_not_utf8_is_named_with_its_offset(tmp_path: Path, data: bytes, message: str, piece: int) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(data)
    with pytest.raises(UserError, match=message) as caught:
        read(path, piece=piece)
    assert "bad.txt" in caught.value.what
    assert caught.value.fix


def test_utf16_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "wide.txt"
    path.write_bytes("hello".encode("utf-16"))
    with pytest.raises(UserError, match="UTF-16"):
        read(path)


def test_a_link_to_nothing_is_not_suggested_for_itself(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="loop' is a link to nothing"):
        open_source([str(tmp_path / "loop")])


def test_missing_file_suggests_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_text("x")
    with pytest.raises(UserError, match=r"does not exist\n.*did you mean 'input.txt'"):
        open_source([str(tmp_path / "imput.txt")])
    with pytest.raises(UserError, match="cannot be read"):
        open_source([str(tmp_path / "nowhere" / "input.txt")])
    with pytest.raises(UserError, match="cannot be read"):
        open_source([str(tmp_path / ("x" * 5000))])
    for number in range(30):
        (tmp_path / f"{number}.log").write_text("x")
    with pytest.raises(UserError, match=r"did you mean 'input\.txt'") as caught:
        open_source([str(tmp_path / "imput.txt")])
    assert "7.log" not in str(caught.value)


def test_no_text_at_all(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    for path in (tmp_path / "empty.txt", tmp_path):
        with pytest.raises(UserError, match="holds no text"):
            open_source([str(path)])


def test_a_pipe_is_not_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="neither a file nor a folder"):
        open_source([str(tmp_path / "pipe")])


def test_a_mistake_in_what_was_kept_is_said_of_its_name() -> None:
    with pytest.raises(UserError) as caught, temporary_file("the prompt", "(1 (2 a)") as file:
        read_trees(file)
    assert caught.value.what.startswith("the prompt line 1: the tree that begins here is never closed")
    assert not file.exists()

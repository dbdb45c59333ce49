"""Compressed files and JSON lines: the text that is inside, or a message that names the place."""

import gzip
import json
import random
import sys
from pathlib import Path

import pytest

from statewise.data import open_corpus, open_source, read_labelled
from statewise.data.compressed import opened
from statewise.specs import DataSpec, UserError

TEXTS = ["the cat sat", "on\r\nthe mat", "é 日本 🙂", "", 'a "quoted" \\ line']


def zstd() -> object:
    return pytest.importorskip("zstandard", reason="the extra zst is not installed")


def packed(content: bytes, ending: str) -> bytes:
    if ending == ".zst":
        compressor = zstd().ZstdCompressor(write_checksum=True)  # type: ignore[attr-defined]
        half = len(content) // 2
        return bytes(compressor.compress(content[:half]) + compressor.compress(content[half:]))  # two frames
    return gzip.compress(content) if ending == ".gz" else content


def texts(path: Path, **options: str) -> list[str]:
    documents, text = [], ""
    for piece in open_source([str(path)], **options).pieces():  # type: ignore[arg-type]
        text += piece.text
        if piece.ends:
            documents.append(text)
            text = ""
    return documents


def read_through(path: Path) -> None:
    with opened(path) as file:
        while file.read(1 << 20):
            pass


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
@pytest.mark.parametrize("ascii", [True, False])
def test_json_lines_are_documents(ending: str, ascii: bool, tmp_path: Path) -> None:
    lines = [
        json.dumps({"id": n, "text": text, "meta": {"of": "x"}}, ensure_ascii=ascii) for n, text in enumerate(TEXTS)
    ]
    content = b"\xef\xbb\xbf" * (not ascii) + "\n".join([*lines[:2], "", *lines[2:]]).encode() + b"\n"
    path = tmp_path / f"rows.jsonl{ending}"
    path.write_bytes(packed(content, ending))
    assert texts(path) == [text.replace("\r\n", "\n") for text in TEXTS]
    assert texts(path, text_column="meta.of") == ["x"] * len(TEXTS)
    assert texts(path, text_column="1") == texts(path)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_compressed_text_is_the_text(ending: str, tmp_path: Path) -> None:
    text = "".join(f"line {number} é\n" for number in range(5000))
    (tmp_path / "t.txt").write_text(text)
    (tmp_path / f"c.txt{ending}").write_bytes(packed(text.encode(), ending))
    plain, inside = (open_corpus(DataSpec(text=str(tmp_path / name))) for name in ("t.txt", f"c.txt{ending}"))
    assert (plain.sha256, plain.train.tokens.tolist()) == (inside.sha256, inside.train.tokens.tolist())
    rows = tmp_path / f"rows.tsv{ending}"
    rows.write_bytes(packed(b"a film\tpos\nlong\tneg\n", ending))
    assert [row.label for row in read_labelled(rows, text=0, label=1)] == ["pos", "neg"]


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_damaged_file_is_refused(ending: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    content = packed("".join(f"{chance.random()}\n" for _ in range(20_000)).encode(), ending)
    path = tmp_path / f"t.txt{ending}"
    for damaged in (content[: len(content) // 2], content[:-1], content[:100] + b"\0" * 50 + content[150:]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"is damaged (gzip|Zstandard)"):
            read_through(path)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_bomb_is_refused_while_it_is_read(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.txt{ending}"
    path.write_bytes(packed(b"a" * (1 << 27) + b"a" * 1000, ending))
    with pytest.raises(UserError, match="far more than any text does"):
        read_through(path)


def test_a_line_of_endless_json_is_not_parsed(tmp_path: Path) -> None:
    """Parsed, these 35 KB would take 900 MB."""
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(packed(b'{"text": "a", "x": [' + b"{}," * 12_000_000 + b"0]}\n", ".gz"))
    with pytest.raises(UserError, match="line 1 has more than 16,777,216 bytes"):
        texts(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": 3}', "line 2: the text is of type int"),
        ('{"text": null}', "line 2: the text is missing"),
        ('{"txt": "x"}', "no column 'text' in .* line 2; it has: txt"),
        ('["x"]', "line 2 is of type list, expected an object"),
        ("{", "line 2 is not JSON"),
        ('{"text": "\\ud800"}', "line 2 is not JSON"),
        ('{"text": "a\\u0000"}', "line 2: character 1 of the text is zero"),
        ("[" * 5000, "line 2 is"),
    ],
)
def test_a_bad_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "good"}\n' + line + "\n")
    with pytest.raises(UserError, match=message):
        texts(path)


def test_the_library_is_asked_for_before_work_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "t.txt").write_text("text")
    (tmp_path / "u.txt.zst").write_bytes(b"")
    with pytest.raises(UserError, match=r"zstandard(.|\n)*install(.|\n)*zst\]"):
        open_source([str(tmp_path / "t.txt"), str(tmp_path / "u.txt.zst")])

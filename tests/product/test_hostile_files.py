"""Files made to hang a reader or to fill the memory: each is answered in seconds and a gigabyte, with no traceback."""

import gzip
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command import TEXT, TINY, call
from limited import MEMORY, Limited

from statewise.data.gettext_pairs import read_catalogs
from statewise.specs import UserError

if not hasattr(os, "fork") or not Path("/proc/self/statm").exists():
    pytest.skip("limits are set and measured as Linux does", allow_module_level=True)

ONE_STEP = ("--set", "train.steps=1", "--set", "train.batch=2", "--out", "out", "--quiet")
DEEP = 100_000
HOURS = "\n".join(f"2024-01-{1 + i // 24:02} {i % 24:02}:00,{i % 7}" for i in range(200))
TAGS = "\n\n".join("\n".join(f"w{i}\tN" for i in range(5)) for _ in range(40))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Of a trained run, to be made hostile."""
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "text.txt").write_text(TEXT)
    out = folder / "run"
    assert call("train", "lstm", "--text", str(folder / "text.txt"), *TINY, "--out", str(out), "--quiet").code == 0
    table: dict[str, object] = json.loads((out / "tokenizer.json").read_text())
    return table


# ------------------------------------------------------------------ how the files are made


def columns(count: int, rows: int = 3) -> str:
    names = ",".join(f"c{i}" for i in range(count))
    return "\n".join([names, *[",".join("1" * count)] * rows])


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def archive(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def changed(data: bytes, **at: int) -> bytes:
    """Bytes of the local header (l5: its sixth) and of the central one (c8: its ninth) of an archive."""
    made, central = bytearray(data), data.find(b"PK\x01\x02")
    for name, value in at.items():
        made[int(name[1:]) + (central if name[0] == "c" else 0)] = value
    return bytes(made)


def npy(shape: object, *, header: bytes | None = None) -> bytes:
    said = header or f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(said) + 1) + said + b"\n" + b"x" * 80


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


SERIES = archive(values=np.sin(np.arange(500.0)))
PLAIN = zipped(x=b"abc" * 50)

# name of the file: (what it holds, None for a pipe; the recipe it is given to; more settings)
DATA: dict[str, tuple[str, Callable[[], str | bytes] | None, tuple[str, ...]]] = {
    "many-columns.csv": ("forecasting", lambda: columns(100_000), ()),
    "many-columns-rows.csv": ("classification", lambda: columns(100_000), ()),
    "digits.csv": ("forecasting", lambda: f"date,load\n{HOURS}\n2024-01-20 00:00,{'1' * 130_000}x", ()),
    "label.tsv": ("classification", lambda: "text\tlabel\n" + f"a b\t{'9' * 5_000}\n" * 30, ()),
    "zone.csv": ("forecasting", lambda: "date,load\n0001-01-01T00:00:00+05:00,1\n0001-01-01T01:00:00+05:00,2\n", ()),
    "pipe.csv": ("forecasting", None, ()),
    "pipe.tsv": ("classification", None, ()),
    "pipe.npy": ("forecasting", None, ()),
    "bomb.csv.gz": ("forecasting", lambda: gzip.compress(b"a,b\n" + b"1,2\n" * (1 << 25), 1), ()),
    "bomb.tsv.gz": ("classification", lambda: gzip.compress(b"a\tb\n" * ((1 << 25) + 1), 1), ()),
    "flipped.npz": ("forecasting", lambda: flipped(SERIES), ()),
    "truncated.npz": ("forecasting", lambda: SERIES[:-30], ()),
    "encrypted.npz": ("forecasting", lambda: changed(PLAIN, l6=1, c8=1), ()),
    "method.npz": ("forecasting", lambda: changed(PLAIN, l8=99, c10=99), ()),
    "no-array.npz": ("forecasting", lambda: PLAIN, ()),
    "bomb.npz": ("forecasting", lambda: archive(values=np.zeros(1 << 28, np.int8)), ()),
    "bomb-grids.npz": ("digits", lambda: archive(x=np.zeros((4, 1 << 13, 1 << 13), np.int8), y=np.arange(4)), ()),
    "empty.npz": ("forecasting", lambda: zipped(x=npy((10**9, 0, 0))), ()),
    "huge.npy": ("forecasting", lambda: npy((10**12,)), ()),
    "header.npy": ("forecasting", lambda: npy("(3"), ()),
    "deep.npy": ("forecasting", lambda: npy(None, header=b"-" * 9_000 + b"1"), ()),
    "junk.mat": ("forecasting", lambda: b"MATLAB".ljust(124) + b"\0\1IM" + struct.pack("<2I", 14, 1 << 31), ()),
    "word.tsv": ("tagging", lambda: f"{TAGS}\n\n{'x' * 140_000}\tN\n", ()),
    "number.conllu": ("tagging", lambda: "\n".join(f"{'9' * 5_000}\tw\t_\tN" + "\t_" * 6 for _ in range(9)), ()),
    "deep.jsonl": ("classification", lambda: '{"text": ' + "[" * DEEP, ()),
    "digits.jsonl": ("classification", lambda: '{"text": "a", "label": ' + "1" * 5_000 + "}", ()),
    "gaps.csv": (
        "forecasting",
        lambda: "date,load\n" + "\n".join(f"{1000 + i:04}-01-01 00:00:0{i % 2},1" for i in range(9)),
        ("--set", "data.irregular=fill"),
    ),
}


@pytest.mark.parametrize("name", DATA)
def test_a_hostile_data_file(name: str, limited: Limited, tmp_path: Path) -> None:
    recipe, content, more = DATA[name]
    path = tmp_path / name
    if content is None:
        os.mkfifo(path)
    else:
        made = content()
        path.write_bytes(made.encode() if isinstance(made, str) else made)
    said = limited.call("train", recipe, "--data", name, *ONE_STEP, *more, cwd=tmp_path)
    assert said.code in ((0, 2) if name in ("label.tsv", "word.tsv") else (2,)), said.output[-2_000:]
    assert said.megabytes < MEMORY >> 20


TOML: dict[str, str | None] = {
    "deep": "a = " + "[" * DEEP,
    "dotted": ".".join("a" * 50_000) + " = 1",
    "inline": "a = {" + ".".join("a" * 50_000) + " = 1}",
    "digits": "seed = " + "1" * 5_000,
    "keys": "\n".join(f"k{i} = 1" for i in range(100_000)),
    "large": "\n".join(f"k{i} = 1" for i in range(300_000)),
    "pipe": None,
}


@pytest.mark.parametrize("verb", ["train", "compare"])
@pytest.mark.parametrize("name", TOML)
def test_a_hostile_recipe_or_study(name: str, verb: str, limited: Limited, tmp_path: Path) -> None:
    content = TOML[name]
    if content is None:
        os.mkfifo(tmp_path / "a.toml")
    else:
        (tmp_path / "a.toml").write_text(content)
    said = limited.call(verb, "a.toml", cwd=tmp_path)
    assert said.code in (1, 2), said.output[-2_000:]
    assert len(said.output.splitlines()) < 30


@pytest.mark.parametrize(
    "setting",
    [
        "model.width=" + "[" * 50_000,
        "model.width=" + "1" * 5_000,
        ".".join("a" * 50_000) + "=1",
        "model.depth=10000000",
        "model.kind=[[]]",
        "train.truncation.kind={kind='fixed'}",
        "model.width=1000000000000",
        "model.forget_bias=1e300",
        "data.tokenizer=" + "x" * 100_000,
    ],
    ids=lambda setting: setting[:16],
)
def test_a_hostile_setting(setting: str, limited: Limited, tmp_path: Path) -> None:
    said = limited.call("train", "lstm", "--set", setting, "--out", "out", cwd=tmp_path)
    assert said.code == 2, said.output[-2_000:]
    assert len(said.output) < 1_000


def replace(of: str, by: str, times: int) -> dict[str, object]:
    return {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": of}, "content": by}] * times}


@pytest.mark.parametrize("name", ["grows", "deep", "list", "pipe"])
def test_a_hostile_tokenizer(name: str, tokenizer: dict[str, object], limited: Limited, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    if name == "pipe":
        os.mkfifo(path)
    else:
        grown = json.dumps({**tokenizer, "normalizer": replace("a", "aa", 40)})
        path.write_text({"grows": grown, "deep": "[" * DEEP, "list": "[1]"}[name])
    (tmp_path / "text.txt").write_text(TEXT)
    said = limited.call("train", "lstm", "--text", "text.txt", "--set", f"data.tokenizer={path}", cwd=tmp_path)
    assert said.code == 2, said.output[-2_000:]


def test_ordinary_replacements_are_no_bomb(tokenizer: dict[str, object], limited: Limited, tmp_path: Path) -> None:
    """As SentencePiece writes them: a space becomes a mark, several become one."""
    rules = {**tokenizer, "normalizer": replace(" ", "▁", 2)}
    (tmp_path / "tokenizer.json").write_text(json.dumps(rules))
    (tmp_path / "text.txt").write_text(TEXT)
    words = ("--text", "text.txt", "--set", "data.tokenizer=tokenizer.json", *ONE_STEP)
    assert limited.call("train", "lstm", *words, cwd=tmp_path).code == 0


def test_memory_that_runs_out_is_told_with_what_to_lower(limited: Limited, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    large = ("--set", "model.width=4096", "--set", "model.init=torch", "--set", "train.batch=64")
    said = limited.call("train", "lstm", "--text", "text.txt", *large, "--out", "out", cwd=tmp_path)
    assert said.code == 1, said.output[-2_000:]
    assert "error: out of memory: " in said.output
    assert "lower train.batch or train.window, then model.width or model.depth" in said.output
    assert len(said.output.splitlines()) < 8


# ------------------------------------------------------------------ catalogs of translations


def catalog(folder: Path, pairs: dict[bytes, bytes]) -> None:
    place, count = 28, len(pairs)
    tables, texts = b"", b""
    for column in (sorted(pairs), [pairs[key] for key in sorted(pairs)]):
        for text in column:
            tables += struct.pack("<2I", len(text), place + 16 * count + len(texts))
            texts += text + b"\0"
    path = folder / "de/LC_MESSAGES/a.mo"
    path.parent.mkdir(parents=True)
    path.write_bytes(struct.pack("<7I", 0x950412DE, 0, count, place, place + 8 * count, 0, 0) + tables + texts)


def head(plural: bytes) -> bytes:
    return b"Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=" + plural + b";\n"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("sign", [b"%" + b"0" * 60_000, b"%(" * 30_000, b"{" * 60_000, b"%1" * 30_000])
def test_a_message_full_of_half_placeholders(sign: bytes, tmp_path: Path) -> None:
    catalog(tmp_path, {b"": head(b"n != 1"), b"one " + sign: b"eins " + sign})
    assert len(read_catalogs("de", tmp_path)) == 1


def test_a_catalog_that_divides_by_zero_or_overlaps(tmp_path: Path) -> None:
    catalog(tmp_path / "zero", {b"": head(b"n%0"), b"a\0as": b"b\0bs"})
    with pytest.raises(UserError, match="is not a gettext catalog: integer modulo by zero"):
        read_catalogs("de", tmp_path / "zero")
    path = tmp_path / "again/de/LC_MESSAGES/a.mo"
    path.parent.mkdir(parents=True)
    entries = struct.pack("<2I", 400_000, 28) * 50_000
    path.write_bytes(struct.pack("<7I", 0x950412DE, 0, 50_000, 28, 28, 0, 0) + entries)
    with pytest.raises(UserError, match="its messages overlap"):
        read_catalogs("de", tmp_path / "again")


def test_the_plural_is_that_of_most_numbers(tmp_path: Path) -> None:
    """As asked for every number: some forms may share a translation."""
    catalog(tmp_path, {b"": head(b"n==1 ? 0 : n<600 ? 1 : 2"), b"a\0as": b"x\0y\0z", b"b\0bs": b"x\0y\0y"})
    assert [(p.source, p.target) for p in read_catalogs("de", tmp_path)] == [
        ("a", "x"),
        ("as", "y"),
        ("b", "x"),
        ("bs", "y"),
    ]

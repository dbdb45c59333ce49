"""Whatever is wrong with a file, the error names it, its line, and what to do."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from statewise.data import (
    Labels,
    Layout,
    Where,
    hold_out,
    read_arrays,
    read_labelled,
    read_pairs,
    read_table,
    read_tagged,
    read_texts,
    read_trees,
)
from statewise.specs import UserError

TOKEN = "1\tDo\tdo\tAUX\tVB\t_\t0\troot\t_\t_\n"
Read = Callable[[Path], Any]


def label_first(path: Path) -> Any:
    return read_labelled(path, format="label-first")


def numbered(path: Path) -> Any:
    return read_labelled(path, text=1, label=0)


def scan(path: Path) -> Any:
    return read_pairs(path, format="scan")


def xpos(path: Path) -> Any:
    return read_tagged(path, layout=Layout(tag="xpos"))


def iob2(path: Path) -> Any:
    return read_tagged(path, scheme="iob2")


def values(path: Path) -> Any:
    return read_arrays(path, label=0)


def packed(text: str) -> bytes:
    return gzip.compress(text.encode())


FILES: list[tuple[str, str | bytes, Read, str]] = [
    # what is no text
    ("a.tsv", b"label\ttext\na\tna\xefve\n", read_labelled, r"a.tsv line 2: byte 5 is 0xef, which is not UTF-8"),
    ("a.tsv", b"label\ttext\na\tx\nb\t\xc3", read_labelled, r"a.tsv line 3: byte 3 is 0xc3.*end of data"),
    ("a.tsv", b"label\ttext\na\tx\0y\n", read_labelled, r"a.tsv line 2: byte 4 is zero, so this is a binary file"),
    (
        "a.csv",
        "text,label\nx,y\n".encode("utf-16"),
        read_labelled,
        r"a.csv'.*UTF-16 byte-order mark\nname it: .*data.encoding",
    ),
    ("a.tsv.gz", packed("label\ttext\n")[:-9], read_labelled, r"a.tsv.gz' is damaged gzip"),
    ("a.tsv.gz", b"\x1f\x8bnot gzip at all", read_labelled, r"a.tsv.gz' is damaged gzip"),
    ("a.txt", b"IN: a OUT: b\nIN: \xff OUT: b", scan, r"a.txt line 2: byte 5 is 0xff"),
    ("a.conllu", TOKEN.encode() + b"\n1\t\xe9", read_tagged, r"a.conllu line 3: byte 3 is 0xe9"),
    ("a.txt", b"(1 good)\n(0 \xfc)", read_trees, r"a.txt line 2: byte 4 is 0xfc"),
    # nothing there
    ("a.tsv", "", read_labelled, r"a.tsv' holds no labelled example"),
    ("a.tsv", "label\ttext\n", read_labelled, r"a.tsv' holds no labelled example"),
    ("a.csv", "\n\n  \n", read_labelled, r"a.csv' holds no labelled example"),
    ("a.jsonl", "\n", read_labelled, r"a.jsonl' holds no labelled example"),
    ("a.tsv", "\t\n", read_pairs, r"a.tsv' holds no pair"),
    ("a.conllu", "# only a comment\n\n", read_tagged, r"a.conllu' holds no tagged sentence"),
    ("a.bio", "-DOCSTART- O\n", read_tagged, r"a.bio' holds no tagged sentence"),
    ("a.txt", "\n", read_trees, r"a.txt' holds no tree"),
    ("a.csv", "", values, r"a.csv' holds no row"),
    # formats and columns
    ("a.dat", "x\ty\n", read_labelled, r"a.dat': the file name does not tell .*\nname it .*data.format"),
    ("a.txt", "x\ty\n", read_pairs, r"a.txt': the file name does not tell the format"),
    (
        "a.csv",
        "text,lable\nx,y\n",
        read_labelled,
        r"no column 'label' in .*a.csv; it has: text, lable\nif the label is in 'lable'",
    ),
    (
        "a.csv",
        "text;label\nx;y\n",
        read_labelled,
        r"it has: text;label\nif ';' stands between columns: .*data.delimiter",
    ),
    ("a.tsv", "x\ty\nz\tw\n", read_labelled, r"no columns 'text' and 'label'.*\n.*no header, give columns by number"),
    ("a.csv", "text,label,text\nx,y,z\n", read_labelled, r"a.csv line 1: the header names 'text' twice"),
    ("a.tsv", "a\n", numbered, r"a.tsv line 1: there is no column 1: the row has 1, 'a'\n.*from 0 to 0, or named"),
    (
        "a.csv",
        "x,y\n",
        lambda path: read_labelled(path, header="no"),
        r"line 1: column 'text' has a name, but .* without a header\nuse its number, 0 to 1, .*data.header.: .yes",
    ),
    ("a.csv", "x,y\n", lambda path: read_table(path, delimiter="::"), r"delimiter '::' is not one character"),
    ("a.tsv", "x\n", lambda path: read_labelled(path, encoding="utf-88"), r"encoding 'utf-88' is not known"),
    ("a.tsv", b"x\n\x81", lambda path: read_labelled(path, encoding="ascii"), r"a.tsv line 2: not ascii"),
    # irregular rows
    ("a.csv", "text,label\nx,y\n\nx,y,z\n", read_labelled, r"a.csv line 4: 3 columns, expected 2 as in line 1"),
    ("a.tsv", "a\tx\nb\n", numbered, r"a.tsv line 2: 1 columns, expected 2 as in line 1"),
    ("a.tsv", "a\tx\nb\ty\tz\n", read_pairs, r"a.tsv line 2: 3 columns, expected 2 as in line 1"),
    ("a.csv", 'text,label\nx,y\n"open,y\nz,w\n', read_labelled, r"a.csv line 3: a quote is opened and never closed"),
    ("a.csv", 'text,label\n"a"b,y\n', read_labelled, r"a.csv line 2: .*expected after '\"'"),
    ("a.csv", "text,label\na\rb,y\n", read_labelled, r"a.csv line 2: .*new-line character"),
    ("a.csv", "text,label\nx, \n", read_labelled, r"a.csv line 2: the label in column 'label' is empty"),
    (
        "a.csv",
        "text,label\n,y\n",
        read_labelled,
        r"a.csv line 2: the text is empty \(label 'y'\)\n.*data.empty.: .skip",
    ),
    ("a.txt", "0 fine\n\n1\n", label_first, r"a.txt line 3: the text is empty \(label '1'\)"),
    # JSON lines
    ("a.jsonl", '{"text": "x", "label": 1}\n{"text": \n', read_labelled, r"a.jsonl line 2: not JSON at character 10"),
    ("a.jsonl", '[{"text": "x"}]', read_labelled, r"a.jsonl line 1: a JSON list, expected an object"),
    ("a.jsonl", '"x"', read_labelled, r"a.jsonl line 1: a JSON str, expected an object"),
    (
        "a.jsonl",
        '{"text": "x", "label": 1}\n{"text": "x"}',
        read_labelled,
        r"no column 'label' in .*line 2; it has: text",
    ),
    ("a.jsonl", '{"text": null, "label": 1}', read_labelled, r"line 1: column 'text' is missing \(null\)"),
    ("a.jsonl", '{"text": ["x"], "label": 1}', read_labelled, r"line 1: column 'text' is a list, expected text"),
    ("a.jsonl", "[" * 100_000, read_labelled, r"a.jsonl line 1: not JSON"),
    ("a.jsonl", '{"text": "x\\ud83d", "label": 1}', read_labelled, r"a.jsonl line 1: \\ud83d is half a character"),
    ("a.jsonl", '{"text": "x", "label": ' + "9" * 5000 + "}", read_labelled, r"a.jsonl line 1: not JSON that can be"),
    ("a.jsonl", '{"txt": "x"}', read_texts, r"no column 'text' in .*; it has: txt\nif the text is in 'txt'"),
    # pairs
    ("a.tsv", "x\ty\n\tz\n", read_pairs, r"a.tsv line 2: the source is empty, but not the other side"),
    ("a.tsv", "x\ty\nz\t \n", read_pairs, r"a.tsv line 2: the target is empty"),
    ("a.txt", "IN: a OUT: b\nIN: a\n", scan, r"a.txt line 2: expected 'IN: … OUT: …', found 'IN: a'"),
    ("a.txt", "IN: a OUT:\n", scan, r"a.txt line 1: the target is empty"),
    # tags
    ("a.conllu", TOKEN + "2\tgo\n", read_tagged, r"a.conllu line 2: 2 columns, CoNLL-U has 10"),
    ("a.conllu", TOKEN.replace("\t", " "), read_tagged, r"a.conllu line 1: 1 columns, CoNLL-U has 10"),
    ("a.conllu", TOKEN + TOKEN, read_tagged, r"a.conllu line 2: word number '1', expected 2\n.*an empty line"),
    ("a.conllu", TOKEN.replace("1", "one"), read_tagged, r"a.conllu line 1: word number 'one', expected 1"),
    ("a.conllu", TOKEN.replace("VB", "_"), xpos, r"a.conllu line 1: xpos is unspecified"),
    ("a.conllu", TOKEN.replace("Do", ""), read_tagged, r"a.conllu line 1: the word in column 1 is empty"),
    (
        "a.conllu",
        TOKEN,
        lambda path: read_tagged(path, layout=Layout(tag="lema")),
        r"CoNLL-U has no column 'lema'\ndid you mean 'lemma'",
    ),
    ("a.conllu", TOKEN, lambda path: read_tagged(path, layout=Layout(tag=10)), r"CoNLL-U has no column 10"),
    ("a.bio", "EU B-ORG\nsaid\n", read_tagged, r"a.bio line 2: 1 columns, expected 2 as in line 1\n.*comment"),
    ("a.bio", "EU\nsaid\n", read_tagged, r"a.bio line 1: word and tag are both read from column 0"),
    ("a.bio", "EU\tO\n\tO\n", read_tagged, r"a.bio line 2: the word in column 0 is empty"),
    (
        "a.bio",
        "EU O\n",
        lambda path: read_tagged(path, layout=Layout(tag=3)),
        r"line 1: there is no column 3 for the tag",
    ),
    ("a.bio", "EU O\n", lambda path: read_tagged(path, layout=Layout(tag="ner")), r"column 'ner' has a name"),
    ("a.bio", "EU O\nsaid VERB\n", iob2, r"a.bio line 2: tag 'VERB' is none of O, B-… and I-…"),
    (
        "a.jsonl",
        '{"text": "x", "label": "a\\nb"}\n',
        read_labelled,
        r"a.jsonl line 1: the label 'a\\nb' holds a line end",
    ),
    # trees
    ("a.txt", "(1 good)\n(0 (1 bad)\n", read_trees, r"a.txt line 2: the tree that begins here is never closed: 1 '\)'"),
    ("a.txt", "(1 good)\n\n(1 bad))\n", read_trees, r"a.txt line 3: '\)' at character 8 closes no bracket"),
    ("a.txt", "(1 good)\nplain words\n", read_trees, r"a.txt line 2: 'plain words' stands outside any tree"),
    ("a.txt", "(1 good) tail (0 bad)\n", read_trees, r"a.txt line 1: 'tail' stands outside any tree"),
    ("a.txt", "(1 good)\n(2 )\n", read_trees, r"a.txt line 2: node \(2\) has neither children nor a word"),
    ("a.txt", "(1 ((2 a) (3 b)))\n", read_trees, r"a.txt line 1: a node has no label"),
    ("a.txt", "(1 a)\n()\n", read_trees, r"a.txt line 2: a node has no label"),
    # numbers
    ("a.csv", "1,2,3\n0,x,4\n", values, r"a.csv line 2: column 1 holds 'x', expected a finite number"),
    ("a.csv", "y,a\n1,nan\n", lambda path: read_arrays(path, label="y"), r"a.csv line 2: column 'a' holds 'nan'"),
    ("a.csv", "1,2\n0,\n", values, r"a.csv line 2: column 1 holds ''"),
    ("a.csv", "1\n0\n", values, r"a.csv line 1: there are no values beside the label"),
    ("a.npz", "not a zip", read_arrays, r"a.npz' is not a NumPy file"),
    ("a.npz", b"PK\x03\x04 broken", read_arrays, r"a.npz' is not a NumPy file"),
]


@pytest.mark.parametrize(("name", "content", "read", "wanted"), FILES, ids=[case[3][:60] for case in FILES])
def test_a_bad_file_is_refused(tmp_path: Path, name: str, content: str | bytes, read: Read, wanted: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError, match=wanted):
        read(path)


@pytest.mark.parametrize("read", [read_labelled, read_pairs, read_tagged, read_trees, read_texts, read_arrays])
def test_a_name_that_leads_nowhere_is_refused_with_the_nearest(tmp_path: Path, read: Read) -> None:
    (tmp_path / "train.tsv").write_text("x")
    with pytest.raises(UserError, match=r"trein.tsv' does not exist\n.*did you mean 'train.tsv'"):
        read(tmp_path / "trein.tsv")


@pytest.mark.parametrize("read", [scan, read_tagged, read_trees, read_texts])
def test_a_folder_is_refused_where_files_are_read(tmp_path: Path, read: Read) -> None:
    with pytest.raises(UserError, match=r"is a folder of 0 files, not a file\nname the files"):
        read(tmp_path)


@pytest.mark.parametrize("read", [read_labelled, read_pairs, read_tagged, read_trees])
def test_no_files_at_all(read: Callable[[list[Path]], Any]) -> None:
    with pytest.raises(UserError, match="no data file is named"):
        read([])


def test_folders_of_labels(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is empty"):
        read_labelled(tmp_path)
    (tmp_path / "pos.txt").write_text("x\n")
    (tmp_path / "README.md").write_text("x\n")
    with pytest.raises(UserError, match=r"README.md' is not a <label>.txt file"):
        read_labelled(tmp_path)
    with pytest.raises(UserError, match=r"pos.txt' is not a folder"):
        read_labelled(tmp_path / "pos.txt", format="folder")
    (tmp_path / "README.md").unlink()
    (tmp_path / "pos.txt").write_bytes(b"x\n\xff")
    with pytest.raises(UserError, match=r"pos.txt line 2: byte 1 is 0xff"):
        read_labelled(tmp_path)


@pytest.mark.parametrize(
    ("de", "en", "wanted"),
    [
        ("a\nb\n", "x\n", r"a.de line 2 has no counterpart: '.*a.de' has 2 lines, '.*a.en' has 1"),
        ("a\n", "x\ny\n\n", r"a.en line 2 has no counterpart: '.*a.de' has 1 lines, '.*a.en' has 3"),
        ("", "x\n", r"a.en line 1 has no counterpart"),
        ("a\n\n", "x\ny\n", r"a.de line 2: the source is empty"),
        ("a\nb\n", "x\n\n", r"a.de line 2: the target is empty"),
    ],
)
def test_files_out_of_step(tmp_path: Path, de: str, en: str, wanted: str) -> None:
    (tmp_path / "a.de").write_text(de)
    (tmp_path / "a.en").write_text(en)
    with pytest.raises(UserError, match=wanted):
        read_pairs(tmp_path / "a.de", tmp_path / "a.en")


@pytest.mark.parametrize(
    ("arrays", "wanted"),
    [
        ({"x": np.zeros((2, 3)), "z": np.zeros(2, int)}, r"a.npz' holds no array 'y'\n.*valid: x, z"),
        ({"x": np.zeros(2), "y": np.zeros(2, int)}, r"array 'x' has shape \[2\]"),
        ({"x": np.zeros((2, 3)), "y": np.zeros(3, int)}, r"array 'y' has shape \[3\].*'x' has 2 sequences"),
        ({"x": np.zeros((2, 3)), "y": np.zeros(2)}, r"array 'y' has shape \[2\] of float64"),
        ({"x": np.array([[1.0], [np.nan]]), "y": np.zeros(2, int)}, r"a.npz row 1: a value of 'x' is not finite"),
        ({"x": np.array([[{}]]), "y": np.zeros(1, int)}, r"a.npz' is not a NumPy file of plain arrays"),
        ({"x": np.zeros((0, 3)), "y": np.zeros(0, int)}, r"array 'x' has shape \[0, 3\]"),
    ],
)
def test_bad_archives(tmp_path: Path, arrays: dict[str, Any], wanted: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(UserError, match=wanted):
        read_arrays(tmp_path / "a.npz")


def test_labels_that_were_never_learned() -> None:
    labels = Labels.of(["neg", "pos"])
    with pytest.raises(UserError, match=r"a.tsv line 4: label 'poss' is not among those learned\ndid you mean 'pos'"):
        labels.encode(["pos", "poss"], where=[Where("a.tsv", 3), Where("a.tsv", 4)])
    with pytest.raises(UserError, match="no labels to learn"):
        Labels.of([])
    for damaged in ("", "[]", "{}", '{"labels": 3}', '{"labels": {}}', '{"labels": {"a": "x"}}'):
        with pytest.raises(UserError, match="labels of"):
            Labels.from_json(damaged)


def test_too_few_to_hold_out() -> None:
    with pytest.raises(UserError, match="1 examples cannot be split"):
        hold_out(1, share=0.5)
    with pytest.raises(UserError, match="1 different groups cannot be split"):
        hold_out(3, share=0.5, groups="aaa")
    with pytest.raises(UserError, match="no label has two examples"):
        hold_out(3, share=0.1, strata="abc")
    with pytest.raises(UserError, match="choose one"):
        hold_out(3, share=0.1, strata="abc", groups="abc")

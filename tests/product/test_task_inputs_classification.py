"""Classification: files as newcomers bring them, and what each verb makes of them."""

import json
from pathlib import Path

import pytest
from command import call
from task_inputs import HALF, LABELLED, LONG, SCRIPTS, TASKS, Case, trained, try_case


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs"), "classification")


def labelled(*rows: tuple[str, str]) -> str:
    return "label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows)


CASES = [
    *(
        case
        for script, (good, bad, text) in SCRIPTS.items()
        for case in (
            Case("train", script, labelled(*[(good, text), (bad, text[::-1])] * 6), None),
            Case("predict", script, labelled((good, text), (bad, text)), 2),
            Case("evaluate", script, labelled((good, text), (bad, text)), None),
        )
    ),
    Case("train", "one class", labelled(*[("good", f"a film {i}") for i in range(8)]), None),
    Case("train", "one row", labelled(("good", "a film")), ("cannot", "more examples")),
    Case("train", "header only", "label\ttext\n", ("rows.tsv", "no labelled example")),
    Case("train", "all alike", labelled(*[("good", "a"), ("bad", "a")] * 6), None),
    Case("train", "duplicates", labelled(*[("1", "one"), ("0", "nought")] * 20), None),
    Case("train", "long", labelled(*[("good", LONG), ("bad", "x")] * 3), None, HALF),
    Case("train", "no text", labelled(("good", "a"), ("bad", "")), ("line 3", "text is empty")),
    Case("train", "no label", labelled(("good", "a"), ("", "b")), ("line 3", "label")),
    Case("train", "ragged", "label\ttext\na\tb\tc\n", ("line 2", "3 columns, expected 2")),
    Case("train", "no header", "good\ta\nbad\tb\n", ("rows.tsv", "no columns 'text' and 'label'")),
    Case("train", "commas", "label,text\na,b\n", ("rows.tsv", "label,text")),
    Case(
        "train",
        "a tab in quotes",
        'label\ttext\n"good"\t"a\tb"\n' * 1 + '"bad"\t"a"\n' * 5 + '"good"\t"b"\n' * 5,
        None,
        {"data.format": "quoted-tsv"},
    ),
    Case("train", "semicolons", "label;text\n" + "good;a,b\nbad;c\n" * 6, None, {"data.delimiter": ";"}, "rows.csv"),
    Case(
        "train",
        "a header among numbered columns",
        "sentiment\tid\treview\n" + "good\t1\ta\nbad\t2\tb\n" * 6,
        ("rows.tsv line 1: 'sentiment' and 'review' look like names of columns", "data.header = yes"),
        {"data.label": 0, "data.text": 2},
    ),
    Case(
        "train",
        "a header that was told",
        "sentiment\tid\treview\n" + "good\t1\ta\nbad\t2\tb\n" * 6,
        None,
        {"data.label": 0, "data.text": 2, "data.header": "yes"},
    ),
    Case("train", "open quote", 'text,label\n"a,b\n', ("line 2", "quote"), file="rows.csv"),
    Case("train", "bad json", '{"text": "a"\n', ("line 1", "not JSON"), file="rows.jsonl"),
    Case("train", "null", '{"text": null, "label": 1}\n', ("line 1", "null"), file="rows.jsonl"),
    Case("train", "ending", LABELLED, ("rows.dat", "label-first"), file="rows.dat"),
    Case("train", "encoding", LABELLED, ("'klingon'", "latin-1"), {"data.encoding": "klingon"}),
    Case("train", "stdin", TASKS["classification"].text, ("standard input",), file="-"),
    Case("evaluate", "one row", labelled(("good", "a warm film")), None),
    Case("evaluate", "unseen", labelled(("odd", "a warm film"), ("good", "a")), None),
    Case("evaluate", "only unseen", labelled(("odd", "a warm film")), None),
    Case("evaluate", "unlabelled", "text\na film\n", ("rows.tsv", "no column 'label'")),
    Case("evaluate", "lines", "a film\n", ("new.txt", "label"), file="new.txt"),
    Case("predict", "unlabelled", "text\na film\n\n \nwarm\n", 4),
    Case("predict", "gaps", labelled(("x", "a film")) + "\n\nx\tdull\n\n", 5),
    Case("predict", "gaps csv", 'text\na film\n\n"two\nlines"\n\n', 4, file="rows.csv"),
    Case("predict", "gaps jsonl", '\n{"text": "a"}\n\n{"text": "b"}\n', 4, file="rows.jsonl"),
    Case("predict", "long", f"warm\n{LONG}\n\nwarm\n", 4, file="new.txt"),
    Case("predict", "empty text", labelled(("good", ""), ("good", "a")), 2),
    Case("predict", "stdin", "warm\n\ndull\n", 3, file="-"),
    Case("predict", "header only", "text\n", 0),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whatever_it_holds(case: Case, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try_case("classification", case, runs, tmp_path, monkeypatch)


def test_unknown_words_are_told(runs: Path, tmp_path: Path) -> None:
    """A text of another language, or one without spaces, read by words: the figure says why it is bad."""
    other = tmp_path / "rows.tsv"
    other.write_text("label\ttext\ngood\tとても良い映画\nbad\tつまらない映画です film\n", encoding="utf-8")
    said = call("evaluate", str(runs / "classification"), "--data", str(other))
    assert "of the tokens unknown; byte or bpe as data.tokenizer reads any text" in " ".join(said.out.split())
    assert (
        json.loads(call("evaluate", str(runs / "classification"), "--data", str(other), "--json").out)["unknown"] > 0.5
    )

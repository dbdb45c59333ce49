"""Files as newcomers bring them, to every task and verb: each works, line by line, or is answered on one screen."""

import gzip
import io
import json
import pickle
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
from command import Said, call


class Task(NamedTuple):
    """`file` is the name of a good file, `text` what it holds; `lines`, how many `predict` writes for it."""

    file: str
    text: str
    lines: int
    settings: dict[str, str]


QUICK = {"model.width": "8", "train.steps": "2", "train.batch": "4", "train.warmup": "1", "train.evaluate_every": "2"}
LABELLED = "".join(f"{label}\ta {word} film\n" for word, label in [("warm", "good"), ("dull", "bad")] * 8)
SENTENCES = "".join(f"Anna N\nsleeps V\n{word} A\n\n" for word in ["well", "ill"] * 6)
PAIRS = "".join(f"{word} Katze {count}\tthe {count} cats\n" for count, word in enumerate(["eine", "die"] * 8))
TREES = "".join(f"({label} (1 not) ({1 - label} {word}))\n" for word, label in [("warm", 0), ("dull", 1)] * 8)
SERIES = "date,load\n" + "".join(f"2024-01-{1 + i // 24:02} {i % 24:02}:00,{i % 12}\n" for i in range(120))
TASKS = {
    "classification": Task("rows.tsv", f"label\ttext\n{LABELLED}", 16, {"data.min_count": "1", "model.embedding": "8"}),
    "tagging": Task("words.txt", SENTENCES, 48, {"data.format": "columns", "words.width": "8"}),
    "translation": Task(
        "pairs.tsv",
        PAIRS,
        16,
        {"model.encoder.width": "8", "model.decoder.width": "8", "decoding.watch": "0", "data.min_count": "1"},
    ),
    "tree": Task("trees.txt", TREES, 16, {"model.embedding": "8"}),
    "forecasting": Task("load.csv", SERIES, 5, {"forecast.context": "12", "forecast.horizon": "4"}),
}


def options(task: str, more: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    merged = {**QUICK, **TASKS[task].settings, **more}
    if task == "translation":
        del merged["model.width"]
    return [word for path, value in merged.items() for word in ("--set", f"{path}={value}")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One trained run for each task, under its name."""
    folder = tmp_path_factory.mktemp("runs")
    for name, task in TASKS.items():
        (folder / task.file).write_text(task.text, encoding="utf-8")
        said = call("train", name, "--data", str(folder / task.file), *options(name), "--out", str(folder / name))
        assert said.code == 0, f"{name}: {said.err}"
    return folder


def answered(said: Said, *helps: str) -> None:
    """On one screen, without a word of Python, with the file or value at fault."""
    assert said.code == 2, said.err + said.out
    assert said.out == ""
    assert "Traceback" not in said.err
    assert "error: " in said.err
    assert len(said.err.splitlines()) <= 25
    for one in helps:
        assert one in said.err, said.err


def verb(
    name: str, task: str, file: str, runs: Path, out: Path, more: Mapping[str, str] = MappingProxyType({})
) -> Said:
    match name:
        case "train":
            return call("train", task, "--data", file, *options(task, more), "--out", str(out), "--quiet")
        case "evaluate":
            return call("evaluate", str(runs / task), "--data", file, "--json")
        case _:
            return call("predict", str(runs / task), file)


# ------------------------------------------------------------------ not what the task reads


def png(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde")


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps({"text": ["a", "b"], "label": [1, 2]}))


def workbook(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")


def loop(path: Path) -> None:
    path.symlink_to(path)  # not even root can read it


def half_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress(b"x" * 1000)[:-8])


def latin(path: Path) -> None:
    path.write_bytes("label\ttext\nna\u00efve\tna\u00efve\n".encode("latin-1"))


def utf16(path: Path) -> None:
    path.write_text("label\ttext\na\tb\n", encoding="utf-16")


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "png": png,
    "pickle": pickled,
    "xlsx": workbook,
    "loop": loop,
    "half-gzip": half_gzip,
    "latin-1": latin,
    "utf-16": utf16,
    "empty": Path.touch,
    "blank": lambda path: path.write_text("\n\n  \n"),
    "absent": lambda path: None,
    "folder": lambda path: (path.mkdir(), (path / "a.bin").write_bytes(b"\0")),
}


@pytest.mark.parametrize("name", ["train", "evaluate", "predict"])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_cannot_be_read_is_named(kind: str, task: str, name: str, runs: Path, tmp_path: Path) -> None:
    path = tmp_path / TASKS[task].file
    UNREADABLE[kind](path)
    before = sorted(tmp_path.rglob("*"))
    said = verb(name, task, str(path), runs, tmp_path / "run")
    if name == "predict" and kind in ("empty", "blank") and said.code == 0:
        assert len(said.out.splitlines()) == (
            3 if kind == "blank" and task != "classification" else 0
        )  # no header, no row
    else:
        answered(said, path.name)
    assert sorted(tmp_path.rglob("*")) == before, "a mistake leaves nothing behind"


# ------------------------------------------------------------------ written another way


WRITTEN: dict[str, Callable[[str], bytes]] = {
    "crlf": lambda text: text.replace("\n", "\r\n").encode(),
    "bom": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "no-final-newline": lambda text: text.rstrip("\n").encode(),
    "gzip": lambda text: gzip.compress(text.encode()),
    "crlf-bom": lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("way", WRITTEN)
def test_it_does_not_matter_how_it_was_written(way: str, task: str, runs: Path, tmp_path: Path) -> None:
    path = tmp_path / (TASKS[task].file + (".gz" if way == "gzip" else ""))
    path.write_bytes(WRITTEN[way](TASKS[task].text))
    plain = runs / TASKS[task].file
    for name in ("evaluate", "predict"):
        said, expected = (verb(name, task, str(file), runs, tmp_path) for file in (path, plain))
        assert said.code == 0, said.err
        assert said.out.rstrip("\n") == expected.out.rstrip("\n")
    assert len(expected.out.splitlines()) == TASKS[task].lines
    assert verb("train", task, str(path), runs, tmp_path / "run").code == 0


# ------------------------------------------------------------------ other contents


class Case(NamedTuple):
    """`expected`: the lines that are written by `predict` (None: whatever works), or what the answer must hold."""

    verb: str
    task: str
    name: str
    text: str
    expected: int | tuple[str, ...] | None
    settings: Mapping[str, str] = MappingProxyType({})
    file: str | None = None


LONG = " ".join(["dull"] * 5000)
HALF = {"data.held_out": "0.5"}
SCRIPTS = {
    "chinese": ("\u597d", "\u574f", "\u8fd9\u90e8 \u7535\u5f71 \u5f88 \u597d"),
    "arabic": (
        "\u062c\u064a\u062f",
        "\u0633\u064a\u0626",
        "\u0641\u064a\u0644\u0645 \u062c\u064a\u062f \u062c\u062f\u0627",
    ),
    "emoji": (
        "\U0001f600",
        "\U0001f44e\U0001f3fd",
        "\U0001f3ac \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",
    ),
}


def labelled(*rows: tuple[str, str]) -> str:
    return "label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows)


def tagged(*sentences: list[tuple[str, str]]) -> str:
    return "".join("".join(f"{word} {tag}\n" for word, tag in one) + "\n" for one in sentences)


def loads(*cells: str) -> str:
    return "date,load\n" + "".join(f"2024-02-{1 + i // 24:02} {i % 24:02}:00,{one}\n" for i, one in enumerate(cells))


CASES = [
    *(
        case
        for script, (good, bad, text) in SCRIPTS.items()
        for case in (
            Case("train", "classification", script, labelled(*[(good, text), (bad, text[::-1])] * 6), None),
            Case("predict", "classification", script, labelled((good, text), (bad, text)), 2),
            Case("evaluate", "classification", script, labelled((good, text), (bad, text)), None),
            Case(
                "train", "tagging", script, tagged(*[[(word, good) for word in text.split()], [(bad, bad)]] * 4), None
            ),
            Case("predict", "tagging", script, tagged([(word, good) for word in text.split()]), len(text.split()) + 1),
            Case("train", "translation", script, f"{text}\t{good}\n{good} {bad}\t{bad}\n" * 4, None),
            Case("predict", "translation", script, f"{text}\n\n{good}\n", 3, file="new.txt"),
            Case("train", "tree", script, f"({good} ({bad} {text.split()[0]}) ({good} x))\n({bad} {good})\n" * 6, None),
            Case("predict", "tree", script, f"({good} ({bad} {text.split()[0]}) ({good} x))\n\n({bad} {good})\n", 3),
            Case(
                "train",
                "forecasting",
                script,
                SERIES.replace("load", good),
                None,
                {"data.targets": f'["{good}"]'},
            ),
        )
    ),
    # classification
    Case("train", "classification", "one class", labelled(*[("good", f"a film {i}") for i in range(8)]), None),
    Case("train", "classification", "one row", labelled(("good", "a film")), ("cannot", "more examples")),
    Case("train", "classification", "header only", "label\ttext\n", ("rows.tsv", "no labelled example")),
    Case("train", "classification", "all alike", labelled(*[("good", "a"), ("bad", "a")] * 6), None),
    Case("train", "classification", "duplicates", labelled(*[("1", "one"), ("0", "nought")] * 20), None),
    Case("train", "classification", "long", labelled(*[("good", LONG), ("bad", "x")] * 3), None, HALF),
    Case("train", "classification", "no text", labelled(("good", "a"), ("bad", "")), ("line 3", "text is empty")),
    Case("train", "classification", "no label", labelled(("good", "a"), ("", "b")), ("line 3", "label")),
    Case("train", "classification", "ragged", "label\ttext\na\tb\tc\n", ("line 2", "3 columns, expected 2")),
    Case("train", "classification", "no header", "good\ta\nbad\tb\n", ("rows.tsv line 2", "no column 'text'")),
    Case("train", "classification", "commas", "label,text\na,b\n", ("rows.tsv line 2", "label,text")),
    Case(
        "train",
        "classification",
        "a tab in quotes",
        'label\ttext\n"good"\t"a\tb"\n' * 1 + '"bad"\t"a"\n' * 5 + '"good"\t"b"\n' * 5,
        None,
        {"data.format": "quoted-tsv"},
    ),
    Case(
        "train",
        "classification",
        "semicolons",
        "label;text\n" + "good;a,b\nbad;c\n" * 6,
        None,
        {"data.delimiter": ";"},
        "rows.csv",
    ),
    Case("train", "classification", "open quote", 'text,label\n"a,b\n', ("line 2", "quote"), file="rows.csv"),
    Case("train", "classification", "bad json", '{"text": "a"\n', ("line 1", "not JSON"), file="rows.jsonl"),
    Case("train", "classification", "null", '{"text": null, "label": 1}\n', ("line 1", "null"), file="rows.jsonl"),
    Case("train", "classification", "ending", LABELLED, ("rows.dat", "label-first"), file="rows.dat"),
    Case("train", "classification", "encoding", LABELLED, ("'klingon'", "latin-1"), {"data.encoding": "klingon"}),
    Case("train", "classification", "stdin", TASKS["classification"].text, ("standard input",), file="-"),
    Case("evaluate", "classification", "one row", labelled(("good", "a warm film")), None),
    Case("evaluate", "classification", "unseen", labelled(("odd", "a warm film"), ("good", "a")), None),
    Case("evaluate", "classification", "only unseen", labelled(("odd", "a warm film")), None),
    Case("evaluate", "classification", "unlabelled", "text\na film\n", ("rows.tsv line 2", "no column 'label'")),
    Case("evaluate", "classification", "lines", "a film\n", ("new.txt", "label"), file="new.txt"),
    Case("predict", "classification", "unlabelled", "text\na film\n\n \nwarm\n", 4),
    Case("predict", "classification", "gaps", labelled(("x", "a film")) + "\n\nx\tdull\n\n", 5),
    Case("predict", "classification", "gaps csv", 'text\na film\n\n"two\nlines"\n\n', 4, file="rows.csv"),
    Case("predict", "classification", "gaps jsonl", '\n{"text": "a"}\n\n{"text": "b"}\n', 4, file="rows.jsonl"),
    Case("predict", "classification", "long", f"warm\n{LONG}\n\nwarm\n", 4, file="new.txt"),
    Case("predict", "classification", "empty text", labelled(("good", ""), ("good", "a")), 2),
    Case("predict", "classification", "stdin", "warm\n\ndull\n", 3, file="-"),
    Case("predict", "classification", "header only", "text\n", 0),
    # tagging
    Case("train", "tagging", "one sentence", tagged([("a", "A")]), ("cannot", "more examples")),
    Case("train", "tagging", "one tag", tagged(*[[("a", "A"), ("b", "A")]] * 8), None),
    Case(
        "train",
        "tagging",
        "long",
        tagged(*[[("a", "A")] * 5000, [("b", "B")]] * 2),
        None,
        {**HALF, "data.longest": "64"},
    ),
    Case("train", "tagging", "numbers", tagged(*[[("1", "0"), ("2", "1")]] * 8), None),
    Case("train", "tagging", "no tag", "Anna N\nsleeps\n\n", ("words.txt line 2",)),
    Case("train", "tagging", "stdin", SENTENCES, ("standard input",), file="-"),
    Case("evaluate", "tagging", "unseen tag", tagged([("Anna", "X"), ("sleeps", "V")]), None),
    Case("evaluate", "tagging", "unlabelled", "Anna\nsleeps\n", ("words.txt line 1",)),
    Case("predict", "tagging", "unlabelled", "Anna\nsleeps\n\n\n\nwell", 6),
    Case("predict", "tagging", "long", "\n".join(["well"] * 5000) + "\n", 5000),
    Case("predict", "tagging", "stdin", "Anna\nsleeps\n", 2, file="-"),
    # translation
    Case("train", "translation", "one pair", "a\tb\n", ("cannot be split",)),
    Case("train", "translation", "one source", "a\tb\n" * 8, ("cannot be split",)),
    Case("train", "translation", "one target", "".join(f"{i}\tb\n" for i in range(12)), None),
    Case("train", "translation", "long", "a b\tc\nb\tc\nc\td\n" * 2 + f"x {LONG}\t{LONG}\ny\tz\n", None, HALF),
    Case("train", "translation", "one column", "a\nb\n", ("pairs.tsv line 1", "no column 1")),
    Case("train", "translation", "one side", "a\tb\nc\t\n", ("pairs.tsv line 2", "target is empty")),
    Case("train", "translation", "one plain file", "a\nb\n", ("pairs.txt", "--data"), file="pairs.txt"),
    Case("train", "translation", "stdin", PAIRS, ("standard input",), file="-"),
    Case("evaluate", "translation", "unseen words", "wo bist du\twhere are you\n", None),
    Case("evaluate", "translation", "unlabelled", "wo bist du\n", ("pairs.tsv line 1", "no column 1")),
    Case("predict", "translation", "gaps", "eine Katze\tx\n\n\ndie Katze\ty\n", 4),
    Case("predict", "translation", "unlabelled", "eine Katze\ndie\n", 2),
    Case("predict", "translation", "long", f"eine\n{LONG}\n\ndie\n", 4, file="new.txt"),
    Case("predict", "translation", "stdin", "eine\n\ndie", 3, file="-"),
    # trees
    Case("train", "tree", "one tree", "(1 a)\n", ("cannot",)),
    Case("train", "tree", "one label", "(1 (1 a) (1 b))\n" * 8, None),
    Case("train", "tree", "open", "(1 (0 a)\n", ("trees.txt line 1", "never closed")),
    Case("train", "tree", "closed twice", "(1 a))\n", ("trees.txt line 1", "closes no bracket")),
    Case("train", "tree", "words alone", "a warm film\n", ("trees.txt line 1", "outside any tree")),
    Case("train", "tree", "no word", "(1 a)\n(1 ())\n", ("trees.txt line 2",)),
    Case("train", "tree", "stdin", TREES, ("standard input",), file="-"),
    Case("evaluate", "tree", "unseen label", "(7 (1 not) (0 warm))\n", None),
    Case("predict", "tree", "long", f"(1 {'(1 a) ' * 5000})\n\n(1 a)\n", 3),
    Case("predict", "tree", "two on a line", "(1 a) (1 b)\n", 2),
    Case("predict", "tree", "stdin", "(1 a)\n\n(0 b)\n", 3, file="-"),
    # forecasting
    Case("train", "forecasting", "one row", loads("1"), ("load.csv",)),
    Case("train", "forecasting", "short", loads(*"1234"), ("load.csv",)),
    Case("train", "forecasting", "constant", loads(*["5"] * 120), None),
    Case("train", "forecasting", "header only", "date,load\n", ("load.csv",)),
    Case("train", "forecasting", "words", loads(*["1"] * 30, "high", *["1"] * 30), ("load.csv:32", "'high'")),
    Case("train", "forecasting", "holes", loads(*["1", "2", ""] * 40), None),
    Case("train", "forecasting", "infinite", loads(*["1"] * 30, "inf", *["1"] * 30), ("load.csv:32",)),
    Case("train", "forecasting", "twice", SERIES + "2024-01-01 00:00,1\n", ("load.csv",)),
    Case("train", "forecasting", "no such time", SERIES + "2024-13-45,1\n", ("load.csv:122", "2024-13-45")),
    Case("train", "forecasting", "ragged", SERIES + "2024-01-06 00:00,1,2\n", ("load.csv:122",)),
    Case("train", "forecasting", "stdin", SERIES, ("standard input",), file="-"),
    Case("predict", "forecasting", "one row", loads("1"), ("load.csv", "a single row")),
    Case("predict", "forecasting", "two rows", loads("1", "2"), 5),
    Case("predict", "forecasting", "holes", loads(*["1", "2", ""] * 10), 5),
    Case("predict", "forecasting", "other columns", "date,power\n2024-01-01,1\n2024-01-02,2\n", ("load",)),
    Case("evaluate", "forecasting", "short", loads(*"1234"), ("load.csv",)),
    Case("predict", "forecasting", "stdin", SERIES, ("standard input", "name files"), file="-"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.verb}-{case.task}-{case.name}")
def test_whatever_it_holds(case: Case, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = case.file or TASKS[case.task].file
    path = name if name == "-" else str(tmp_path / name)
    if name == "-":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(case.text.encode())))
    else:
        Path(path).write_bytes(case.text.encode())
    said = verb(case.verb, case.task, path, runs, tmp_path / "run", case.settings)
    if isinstance(case.expected, tuple):
        answered(said, *case.expected)
        assert not (tmp_path / "run").exists()
        return
    assert said.code == 0, said.err
    if case.expected is not None:
        assert len(said.out.split("\n")) - 1 == case.expected, said.out[:500]


GAPS = {
    "classification": ("label\ttext\n", ["x\ta warm film", "x\tdull", "x\twarm"]),
    "translation": ("", ["eine Katze 1\tx", "die\ty", "die Katze 3\tz"]),
}


@pytest.mark.parametrize("task", GAPS)
def test_answers_stand_where_the_rows_stand(task: str, runs: Path, tmp_path: Path) -> None:
    header, rows = GAPS[task]
    path = tmp_path / TASKS[task].file
    path.write_text(header + "\n".join(rows) + "\n")
    plain = verb("predict", task, str(path), runs, tmp_path).out.split("\n")
    path.write_text(header + "\n" + "\n \n".join(rows) + "\n\n")
    gaps = verb("predict", task, str(path), runs, tmp_path).out.split("\n")
    assert len(gaps) == 1 + 5 + 1 + 1
    assert gaps[1::2][:3] == plain[:3]
    said = call("predict", str(runs / task), str(path), "--json")
    first = 2 if header else 1
    assert [json.loads(line)["line"] for line in said.out.splitlines()] == list(range(first, first + 7))


STRANGE = {
    "classification": "label\ttext\nneu\ta warm film\n",
    "tagging": "Anna X\nsleeps Y\n",
    "tree": "(7 (8 not) (9 warm))\n",
}


@pytest.mark.parametrize("task", STRANGE)
def test_held_out_labels_that_were_never_learned(task: str, runs: Path, tmp_path: Path) -> None:
    """Nothing could tell good weights from bad ones; a trained run is evaluated, and no surprise is no praise."""
    held = tmp_path / TASKS[task].file
    held.write_text(STRANGE[task])
    answered(
        verb("train", task, str(runs / TASKS[task].file), runs, tmp_path / "run", {"data.validation": str(held)}),
        *(held.name, "none is among those learned", "line"),
    )
    said = call("evaluate", str(runs / task), "--data", str(held), "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["nats"] is None


def test_unknown_words_are_told(runs: Path, tmp_path: Path) -> None:
    """A text of another language, or one without spaces, read by words: the figure says why it is bad."""
    other = tmp_path / "rows.tsv"
    other.write_text("label\ttext\ngood\tとても良い映画\nbad\tつまらない映画です film\n", encoding="utf-8")
    said = call("evaluate", str(runs / "classification"), "--data", str(other))
    assert "of the tokens unknown; char or bpe as data.tokenizer reads any text" in " ".join(said.out.split())
    assert (
        json.loads(call("evaluate", str(runs / "classification"), "--data", str(other), "--json").out)["unknown"] > 0.5
    )

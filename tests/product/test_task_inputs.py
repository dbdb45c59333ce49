"""Files as newcomers bring them, to every task and verb: each works, line by line, or is answered on one screen.

What is odd about one task's files is in `test_task_inputs_*.py`.
"""

import gzip
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from command import call
from covering import covered
from task_inputs import TASKS, answered, trained, verb


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs"), *TASKS)


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


@covered("way, task", list(WRITTEN), list(TASKS), strength=1)
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


# ------------------------------------------------------------------ gaps, and labels that were never learned


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

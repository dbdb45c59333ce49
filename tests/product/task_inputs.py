"""What the tests share that bring all kinds of files to the tasks: a good file of each, tiny runs, the verbs."""

import io
import sys
from collections.abc import Mapping
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


class Case(NamedTuple):
    """A file to one verb. `expected`: the lines `predict` writes (None: it works), or what the answer must hold."""

    verb: str
    name: str
    text: str
    expected: int | tuple[str, ...] | None
    settings: Mapping[str, str] = MappingProxyType({})
    file: str | None = None

    def __str__(self) -> str:
        return f"{self.verb}-{self.name}"


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


def options(task: str, more: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    merged = {**QUICK, **TASKS[task].settings, **more}
    if task == "translation":
        del merged["model.width"]
    return [word for path, value in merged.items() for word in ("--set", f"{path}={value}")]


def trained(folder: Path, *tasks: str) -> Path:
    """The folder, with a good file and a trained run of each task, under its name."""
    for name in tasks:
        task = TASKS[name]
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


def try_case(task: str, case: Case, runs: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It works, with as many lines as it should have, or is answered and leaves nothing behind."""
    name = case.file or TASKS[task].file
    path = name if name == "-" else str(folder / name)
    if name == "-":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(case.text.encode())))
    else:
        Path(path).write_bytes(case.text.encode())
    said = verb(case.verb, task, path, runs, folder / "run", case.settings)
    if isinstance(case.expected, tuple):
        answered(said, *case.expected)
        assert not (folder / "run").exists()
        return
    assert said.code == 0, said.err
    if case.expected is not None:
        assert len(said.out.split("\n")) - 1 == case.expected, said.out[:500]

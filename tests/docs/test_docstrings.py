"""Every public name has a docstring with an example that runs; runs and evaluations show tables and curves.

The examples share a folder with small files and a run of each task, and find `sw` and `torch` imported.
"""

import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from task_runs import AHEAD, PAIRS, STEPS, WORDS, write_files

import statewise as sw
from statewise.comparison.comparison import Compared
from statewise.inspection import Inspection
from statewise.lab import Lab
from statewise.tasks import TASKS, Run, Trained, train
from statewise.training.history import History
from statewise.training.progress import Silent

RUNS = tuple(task.run for task in TASKS.values())
CLASSES = (Run, *RUNS, Trained, History, Compared, Inspection, Lab)
TRAINED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "lstm": ("lstm", "text.txt", {"train.window": 16, "train.truncation": 16, "train.steps": 40}),
    "classification": ("classification", "rows.tsv", {"data.min_count": 1, "model.embedding": 8}),
    "tagging": ("tagging", "tags.tsv", WORDS),
    "tree": ("tree", "trees.txt", {}),
    "translation": ("translation", "pairs.tsv", PAIRS),
    "forecasting": ("forecasting", "series.csv", {**AHEAD, "forecast.mode": "recursive", "model.kind": "lstm"}),
}
STUDY = """
title = "Two small models"
question = "Which predicts better?"
seeds = 1
base.data.text = ["text.txt"]
base.train = {device = "cpu", steps = 3, batch = 4, window = 16, truncation = 16, evaluate_tokens = 200}
budget = {kind = "parameters", amount = 3000, tolerance = 0.2}
entry = [{name = "elman", settings.model.kind = "elman"}, {name = "gru", settings.model.kind = "gru"}]
"""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FROM_TUPLE = set(dir(tuple)) | {"open"}  # `open` is what `sw.load` calls


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    write_files(folder)
    (folder / "text.txt").write_text("the cat sat on the mat and the dog sat on the log, so the cat sat. " * 60)
    (folder / "two.toml").write_text(STUDY)
    for name, (recipe, file, settings) in TRAINED.items():
        given = {key: value for key, value in {**STEPS, **settings}.items() if value is not None}
        train(recipe, settings=given, data=folder / file, out=folder / "runs" / name, display=Silent())
    return folder


def public_methods(kind: type) -> Iterator[str]:
    """Methods and properties that a user sees on such an object; fields of a tuple are data."""
    data = {*getattr(kind, "_fields", ()), *getattr(kind, "__annotations__", {})}
    for name in dir(kind):
        if not name.startswith("_") and name not in data | FROM_TUPLE:
            yield name


def described() -> dict[str, str]:
    """Docstrings by the name of what they describe."""
    found = {f"sw.{name}": inspect.getdoc(getattr(sw, name)) or "" for name in sw.__all__}
    for kind in CLASSES:
        found[kind.__name__] = inspect.getdoc(kind) or ""
        for name in public_methods(kind):
            found[f"{kind.__name__}.{name}"] = inspect.getdoc(inspect.getattr_static(kind, name)) or ""
    return found


DESCRIBED = described()
EXAMPLES = {name: text for name, text in DESCRIBED.items() if ">>>" in text}


def own_examples() -> dict[str, str]:
    """Each text once: an inherited docstring is run under the first name that has it."""
    return {name: text for text, name in {text: name for name, text in reversed(EXAMPLES.items())}.items()}


def code_of(text: str) -> str:
    """What is run of a docstring."""
    return "".join(one.source for one in doctest.DocTestParser().get_examples(text) if not one.options)


def test_every_public_name_is_described_and_has_an_example() -> None:
    """In its own docstring, or in that of its class, where it is used."""
    lacking = []
    for name, text in DESCRIBED.items():
        owner, _, method = name.rpartition(".")
        around = code_of(DESCRIBED.get(owner, "")) if owner != "sw" else ""
        if not text or not (code_of(text) or re.search(rf"\.{method}\b", around)):
            lacking.append(name)
    assert not lacking, f"no docstring with an example: {', '.join(lacking)}"
    assert {"sw.build", "TreeRun.predict", "ForecastingRun.stationarity", "Trained.history"} <= DESCRIBED.keys()


def test_a_name_without_an_example_is_noticed() -> None:
    assert not code_of("Says what it does.")
    assert not code_of(">>> 1  # doctest: +SKIP")
    assert code_of("Adds.\n\n>>> 1 + 1\n2\n")


@pytest.mark.parametrize("name", own_examples())
def test_the_example_runs(name: str, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    names = {"sw": sw, "torch": torch}
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], names, name, None, 0)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert not report, "".join(report)


# ---------------------------------------------------------------- what runs and evaluations show


@pytest.mark.parametrize("task", TRAINED)
def test_a_run_shows_its_sizes_and_its_learning_curve(task: str, world: Path) -> None:
    run = sw.load(world / "runs" / task)
    assert str(world / "runs" / task) in repr(run)
    page = run._repr_html_()
    assert page.count("<svg") == 1
    assert f"loss ({run.spec.loss_name.replace('_', ' ')})" in page
    assert [series.name for series in run.history.figure().series] == ["training", "validation"]
    assert f"{sum(p.numel() for p in run.model.parameters()):,}" in page


@pytest.mark.parametrize("task", TRAINED)
def test_an_evaluation_prints_the_model_beside_the_baselines(task: str, world: Path) -> None:
    evaluation = sw.load(world / "runs" / task).evaluate()
    report = evaluation.report("this model")
    printed, page = repr(evaluation), evaluation._repr_html_()
    assert len(report.rows) > 1
    for row in report.rows:
        assert any(line.split() == " ".join(row).split() for line in printed.splitlines()), printed
    assert report.note in printed
    assert page.count("<tr") >= 1 + len(report.rows)
    assert f'<tr class="best"><td class="text">{report.rows[report.own][0]}</td>' in page
    assert page.count("<svg") == 1  # the learning curve of its run


def test_what_training_returns_shows_the_learning_curve(world: Path) -> None:
    settings = {**STEPS, "train.window": 16, "train.truncation": 16}
    trained = train("gru", settings=settings, data=world / "text.txt", out=world / "runs" / "shown", display=Silent())
    assert repr(trained).startswith(f"Trained('{trained.path}': 8 steps in ")
    assert "best at step 8: nats " in repr(trained)
    assert trained._repr_html_().count("<svg") == 1
    assert trained.history["loss"] == trained.load().history["loss"]

"""One to one, one to many, many to one, many to many aligned and unaligned: five commands, and what each is given."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import call
from task_runs import PAIRS, STEPS, WORDS, write_files
from tiny_run import Cut, at, crash, evidence, resume

import statewise as sw
from statewise.specs import UserError
from statewise.tasks import Trained, train
from statewise.tasks.translation import TranslationRun
from statewise.training.progress import Silent

SMALL = {name: value for name, value in {**STEPS, **PAIRS}.items() if value is not None} | {"decoding.min_length": 1}
# name: recipe, file, settings, a row without its answer
PICTURES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "one-to-one": ("vector-to-class", "vectors.csv", {**STEPS, "data.label": "label"}, "x,y\n0.5,1\n"),
    "one-to-one-number": ("vector-to-series", "sums.tsv", SMALL, "1.5 4\n"),
    "one-to-many": ("class-to-text", "classes.tsv", SMALL, "ab\n"),
    "one-to-many-numbers": ("vector-to-series", "waves.tsv", SMALL, "1.5 4\n"),
    "many-to-one": (
        "classification",
        "rows.tsv",
        {**STEPS, "data.min_count": 1, "model.embedding": 8},
        "a warm film\n",
    ),
    "many-to-many-aligned": ("tagging", "tags.tsv", {**STEPS, **WORDS}, "the\ncat\n"),
    "many-to-many-unaligned": ("translation", "pairs.tsv", SMALL, "a b c\n"),
}

FILES = {"class-to-text": "classes.tsv", "vector-to-series": "waves.tsv"}


@pytest.fixture(scope="module", name="files")
def written_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    write_files(folder)
    points = np.random.default_rng(0).normal(size=(60, 2)).round(3)
    lines = [f"{x},{y},{'right' if x > 0 else 'left'}" for x, y in points]
    (folder / "sums.tsv").write_text("".join(f"{x} {y}\t{x + y:.3f}\n" for x, y in points))
    (folder / "vectors.csv").write_text("x,y,label\n" + "\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("picture", PICTURES)
def test_row_b4_each_picture_is_a_command(picture: str, files: Path, tmp_path: Path) -> None:
    recipe, file, settings, row = PICTURES[picture]
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    out = str(tmp_path / "run")
    said = call("train", recipe, "--data", str(files / file), *options, "--out", out, "--quiet")
    assert said.code == 0, said.err
    assert "perfect" in call("evaluate", out).out
    given = tmp_path / f"row{'.csv' if file.endswith('csv') else '.txt'}"
    given.write_text(row)
    answer = call("predict", out, str(given))
    assert answer.code == 0, answer.err
    assert answer.out.strip()


def start(files: Path, out: Path, settings: dict[str, Any] | None = None, **more: Any) -> Trained:
    both = {**SMALL, **(settings or {})}
    return train("class-to-text", settings=both, **{"data": files / "classes.tsv", **more}, out=out, display=Silent())


def opened(path: Path) -> TranslationRun:
    run = sw.load(path)
    assert isinstance(run, TranslationRun)
    return run


@pytest.mark.parametrize("context", ["initial", "each_step", "both"])
def test_row_b4_the_class_decides_what_is_written(context: str, files: Path, tmp_path: Path) -> None:
    """Texts of the classes `ab` and `cd` have no letter in common: the right class costs far less than another."""
    settings = {"model.context": context, "train.steps": 60, "train.warmup": 5, "model.decoder.width": 16}
    run = opened(start(files, tmp_path / "run", {**settings, "train.evaluate_every": 60, "train.save_every": 60}).path)
    found = run.evaluate()
    assert found.shuffled_nats is not None
    assert found.nats < found.uniform_nats < found.shuffled_nats
    for name in ("ab", "cd"):
        drawn = {
            letter
            for seed in range(5)
            for letter in run.generate(name, sampling=sw.Sampling(temperature=0.5, seed=seed))
        }
        assert drawn <= {*name, " "}
    assert "its sources shuffled" in [row[0] for row in found.report("it").rows]


@pytest.mark.parametrize("recipe", ["class-to-text", "vector-to-series"])
def test_a_run_that_was_cut_is_the_run_that_was_not(recipe: str, files: Path, tmp_path: Path) -> None:
    given = {"settings": {**SMALL, "train.save_every": 3}, "data": files / FILES[recipe], "display": Silent()}
    whole = evidence(train(recipe, out=tmp_path / "whole", **given))
    with pytest.raises(Cut):
        train(recipe, out=tmp_path / "cut", on_step=at(5, crash), **given)
    assert evidence(resume(tmp_path / "cut")) == whole


def test_a_series_is_written_as_numbers(files: Path, tmp_path: Path) -> None:
    made = train("vector-to-series", settings=SMALL, data=files / "waves.tsv", out=tmp_path / "run", display=Silent())
    run = opened(made.path)
    one, two = run.predict([1.5, 4]), run.predict([[1.5, 4], [1.2, 3]])
    assert one == two[0]
    assert all(isinstance(value, float) for value in one)
    assert run.evaluate([([1.5, 4], [1.5, -1.5, 1.5, -1.5])]).mse == pytest.approx(
        np.square(np.pad(one[:4], (0, 4 - len(one[:4])), mode="edge") - [1.5, -1.5, 1.5, -1.5]).mean()
    )
    drawn = run.generate("1.5 4", sampling=sw.Sampling(seed=1)).split()
    assert all(-2.0 <= float(number) <= 2.0 for number in drawn)


def test_numbers_may_stand_in_columns_lists_or_one_cell(files: Path, tmp_path: Path) -> None:
    rows = [line.split("\t") for line in (files / "waves.tsv").read_text().splitlines()]
    (tmp_path / "a.csv").write_text("a,n,y\n" + "".join(f"{x.replace(' ', ',')},{y}\n" for x, y in rows))
    lists = [{"x": [float(one) for one in x.split()], "y": [float(one) for one in y.split()]} for x, y in rows]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lists))
    columns: dict[str, dict[str, Any]] = {
        "a.csv": {"data.source_column": ["a", "n"], "data.target_column": "y", "data.header": "auto"},
        "a.jsonl": {"data.source_column": "x", "data.target_column": "y", "data.header": "auto"},
    }
    whole = evidence(
        train("vector-to-series", settings=SMALL, data=files / "waves.tsv", out=tmp_path / "run", display=Silent())
    )
    for name, settings in columns.items():
        made = train(
            "vector-to-series",
            settings={**SMALL, **settings},
            data=tmp_path / name,
            out=tmp_path / f"run-{name}",
            display=Silent(),
        )
        assert evidence(made)["weights"] == whole["weights"]


@pytest.mark.parametrize(
    ("recipe", "given", "said"),
    [
        ("class-to-text", "ab\nxy\n", "'xy' is no class that was learned"),
        ("vector-to-series", "1 2\n1 2 3\n", "a vector of 3 numbers, expected 2"),
        ("vector-to-series", "1 nan\n", "'1 nan' is not a list of finite numbers"),
        ("vector-to-series", "ab\n", "is not a list of finite numbers"),
    ],
)
def test_bad_sources_are_refused(recipe: str, given: str, said: str, files: Path, tmp_path: Path) -> None:
    made = train(recipe, settings=SMALL, data=files / FILES[recipe], out=tmp_path / "run", display=Silent())
    (tmp_path / "given.txt").write_text(given)
    with pytest.raises(UserError, match=said):
        opened(made.path).predict(tmp_path / "given.txt")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("1 2\t1 2 3\n1 2 3\t4 5\n", r"line \d: a vector of \d numbers, expected \d"),
        ("1 2\t1 b\n3 4\t5\n", "line 1: '1 b' is not a list"),
    ],
)
def test_bad_rows_of_numbers_are_refused(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text(content * 4)
    with pytest.raises(UserError, match=said):
        train("vector-to-series", settings=SMALL, data=tmp_path / "bad.tsv", out=tmp_path / "run", display=Silent())

"""Grids from the command line: train, resume, evaluate, predict; by their own network, and row by row by others."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import call
from tiny_run import Cut, at, crash, evidence, resume

from statewise import load
from statewise.models import LINEAGE
from statewise.specs import UserError
from statewise.tasks import Trained, train
from statewise.training.progress import Silent

SETTINGS: dict[str, Any] = {
    "model.width": 8,
    "train.steps": 12,
    "train.batch": 4,
    "train.warmup": 2,
    "train.lr": 0.02,
    "train.log_every": 1,
    "train.evaluate_every": 4,
    "train.save_every": 3,
}


def strokes(count: int, *, height: int = 5, width: int = 4) -> tuple[Any, Any]:
    """A bright row or a bright column in noise."""
    rng = np.random.default_rng(count)
    x_NHW = rng.normal(0, 0.1, (count, height, width))
    for i in range(count):
        if i % 2:
            x_NHW[i, rng.integers(height)] += 1
        else:
            x_NHW[i, :, rng.integers(width)] += 1
    return x_NHW, np.where(np.arange(count) % 2, "row", "column")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grids")
    x_NHW, label_N = strokes(60)
    np.savez(folder / "a.npz", x=x_NHW, y=label_N, x_test=x_NHW[:10], y_test=label_N[:10])
    wider_NHW, wider_label_N = strokes(20, width=7)
    np.savez(folder / "wider.npz", x=wider_NHW, y=wider_label_N)
    np.savez(folder / "unlabelled.npz", x=x_NHW[:3])
    np.savez(folder / "rgb.npz", x=np.zeros((4, 5, 4, 3)), y=label_N[:4])
    return folder


def start(files: Path, out: Path, settings: dict[str, Any] | None = None, **more: Any) -> Trained:
    given = {"data": files / "a.npz", "display": Silent(), **more}
    return train("digits", settings={**SETTINGS, **(settings or {})}, out=out, **given)


@pytest.fixture(scope="module")
def trained(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(files, tmp_path_factory.mktemp("run") / "grid", {"train.steps": 150}).path


def test_it_learns_and_says_so(trained: Path, files: Path) -> None:
    said = call("evaluate", str(trained), "--data", f"{files / 'a.npz'}:x_test:y_test", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["accuracy"] == 1.0
    said = call("predict", str(trained), str(files / "unlabelled.npz"))
    assert said.out.split() == ["column", "row", "column"]


def test_a_run_that_was_cut_is_the_run_that_was_not(files: Path, tmp_path: Path) -> None:
    settings = {"model.dropout": 0.2, "model.input_dropout": 0.1, "train.accumulate": 2}
    whole = evidence(start(files, tmp_path / "whole", settings))
    with pytest.raises(Cut):
        start(files, tmp_path / "cut", settings, on_step=at(8, crash))
    assert evidence(resume(tmp_path / "cut")) == whole


def test_grids_of_several_sizes(files: Path, tmp_path: Path) -> None:
    both = [str(files / "a.npz"), str(files / "wider.npz")]
    run = load(start(files, tmp_path / "run", data=both).path)
    assert len(list(run.predict(both))) == 80
    alone = [row["probabilities"] for row in run.predict(files / "wider.npz")]
    assert alone == [pytest.approx(row["probabilities"], rel=1e-4) for row in list(run.predict(both))[60:]]


@pytest.mark.parametrize("kind", [row.spec.kind for row in LINEAGE if row.spec.learns == "gradient"])
def test_others_read_it_row_by_row(kind: str, files: Path, tmp_path: Path) -> None:
    settings = {"model.kind": kind, "train.steps": 2, "train.evaluate_every": 2}
    run: Any = load(start(files, tmp_path / "run", settings).path)
    assert run.encoding.model_input() == {"values": 4}
    assert len(list(run.predict(files / "unlabelled.npz"))) == 3
    with pytest.raises(UserError, match=r"a grid is 7 wide, others are 4; this model reads it row by row"):
        list(run.predict(files / "wider.npz"))


def test_other_cells_are_refused(trained: Path, files: Path) -> None:
    said = call("evaluate", str(trained), "--data", str(files / "rgb.npz"))
    assert said.code == 2
    assert "3 values in each cell, but training had 1" in said.err
    said = call("evaluate", str(trained), "--data", str(files / "unlabelled.npz"))
    assert said.code == 2
    assert "no array 'y'" in said.err


@pytest.mark.parametrize(
    ("data", "says"),
    [("a.csv", "grids are read from NumPy archives"), ("a.npz:x:z", "no array 'z'"), ("hub:a:train", "read as texts")],
)
def test_a_mistake_is_answered(
    data: str, says: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("1,2\n")
    (tmp_path / "a.npz").write_bytes((files / "a.npz").read_bytes())
    said = call("train", "digits", "--data", data, "--out", "run")
    assert said.code == 2, said.err
    assert says in said.err
    assert not (tmp_path / "run").exists()


def test_without_a_file_there_are_digits(tmp_path: Path) -> None:
    quick = ["train.steps=1", "train.evaluate_every=1", "model.width=2"]
    for recipe in (["digits"], ["classification", "--set", "data.kind=grid"]):
        said = call(
            "train", *recipe, *[word for one in quick for word in ("--set", one)], "--out", str(tmp_path / recipe[0])
        )
        assert said.code == 0, said.err
        assert "the embedded digits" in said.err

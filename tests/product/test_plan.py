"""`train --plan`: bytes and seconds before a training, by its first steps; nothing is written."""

import json
from pathlib import Path

import pytest
import torch
from command import call

import statewise as sw
from statewise.core import state_bytes
from statewise.training.planning import Alive

SMALL = {"train.batch": 32, "train.steps": 7, "train.device": "cpu", "model.width": 32}


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat and the dog on the log, " * 400)
    monkeypatch.chdir(tmp_path)
    return path


@pytest.mark.parametrize("kind", ["elman", "lstm", "transformer", "mamba2", "gated_delta", "ttt_linear", "mingru"])
def test_a_few_rows_foretell_all_of_them(kind: str, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = sw.plan(kind, settings=SMALL, data=text)
    monkeypatch.setattr("statewise.training.planning.memory_of", lambda device: measured.held + measured.peak // 8)
    said = sw.plan(kind, settings=SMALL, data=text)
    assert measured.step_seconds is not None
    assert measured.fit == measured.rows == 32
    assert said.step_seconds is None
    assert 0 < said.fit < 32
    assert said.held == pytest.approx(measured.held, rel=0.01)
    assert said.peak == pytest.approx(measured.peak, rel=0.05)


def test_what_is_held_is_counted(text: Path) -> None:
    made = sw.plan("lstm", settings={**SMALL, "train.optimizer": "adamw", "train.average": 0.9}, data=text)
    assert made.held == pytest.approx(4 * made.parameters * 4, rel=0.01)  # weights, two moments, the average
    assert made.steps == 7
    assert made.tokens == 7 * 32 * 64
    sgd = sw.plan("lstm", settings={**SMALL, "train.optimizer": "sgd"}, data=text)
    assert sgd.held == 4 * sgd.parameters


def test_accumulating_reads_fewer_rows_at_once(text: Path) -> None:
    whole, half = (sw.plan("lstm", settings={**SMALL, "train.accumulate": parts}, data=text) for parts in (1, 2))
    assert half.rows == 16
    assert half.peak - half.held < 0.75 * (whole.peak - whole.held)


@pytest.mark.parametrize("recipe", ["classification", "tagging", "translation", "forecasting", "tree"])
def test_every_task_can_be_planned(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = sw.plan(recipe, settings={"train.batch": 4, "train.device": "cpu"})
    assert made.peak > made.held > 4 * made.parameters
    assert made.step_seconds is not None
    assert list(tmp_path.iterdir()) == []


def asked(text: Path, *more: str) -> list[str]:
    return ["train", "gru", "--data", str(text), "--batch", "64", "--steps", "5", "--device", "cpu", "--plan", *more]


def test_the_command_says_it_and_writes_nothing(text: Path) -> None:
    said = call(*asked(text))
    assert said.code == 0, said.err
    assert "5 steps read 20,480 tokens" in said.out
    assert "at the peak of a step" in said.out
    assert "a step, " in said.out
    assert json.loads(call(*asked(text, "--json")).out)["rows"] == 64
    assert [path.name for path in text.parent.iterdir()] == [text.name]


def test_what_does_not_fit_says_what_would(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = json.loads(call(*asked(text, "--json")).out)
    monkeypatch.setattr("statewise.training.planning.memory_of", lambda device: (made["held"] + made["peak"]) // 2)
    said = call(*asked(text))
    assert said.code == 1
    assert "does not fit" in said.err
    parts = int(said.err.split("train.accumulate=")[1].split(",")[0])
    assert call(*asked(text, "--set", f"train.accumulate={parts}")).code == 0


@pytest.mark.parametrize("more", [["--resume"], ["--out", "here"], ["--test", "text.txt"]])
def test_what_needs_a_run_is_refused(more: list[str], text: Path) -> None:
    said = call("train", *([] if more == ["--resume"] else ["gru"]), "--plan", *more)
    assert said.code == 2
    assert "--plan writes nothing" in said.err


@pytest.mark.parametrize("batch", [1, 8])
def test_where_not_one_row_fits_none_is_advised(batch: int, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = sw.plan("gru", settings={**SMALL, "train.batch": batch}, data=text).held
    monkeypatch.setattr("statewise.training.planning.memory_of", lambda device: held)
    made = sw.plan("gru", settings={**SMALL, "train.batch": batch}, data=text)
    assert made.fit == 0
    assert made.step_seconds is None


def test_counting_has_no_steps(text: Path) -> None:
    with pytest.raises(sw.UserError, match="no steps to plan"):
        sw.plan("markov", data=text)


def test_bytes_are_those_of_storages() -> None:
    known = torch.zeros(100)
    with Alive([known]) as alive:
        first = known[:50] + 1  # 200 bytes; the view is of what is known
        second = torch.cat([first, first])  # 400 more
        del first
        third = second[:10].clone()  # 40, after 200 have gone
    assert alive.peak == 600
    assert alive.now == 440
    assert state_bytes((second, third)) == 440

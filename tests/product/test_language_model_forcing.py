"""Language models that read themselves while they learn: trained, cut, resumed; and what it costs to read oneself."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import BASE, Cut, at, call, crash, evidence, resume, start, write_text

from statewise.core import rows
from statewise.specs import LanguageModelSpec, make_spec
from statewise.specs.train import FreeRunning
from statewise.tasks import load
from statewise.tasks.job import Opening
from statewise.tasks.language_model import LanguageModelJob, LanguageModelRun
from statewise.training import Parallel

HALF = {"forcing.kind": "scheduled", "forcing.schedule": "constant", "forcing.start": 0.5}
REGIMES: dict[str, dict[str, Any]] = {
    "scheduled": {
        "forcing.kind": "scheduled",
        "forcing.schedule": "linear",
        "forcing.steps": 20,
        "train.truncation": "random:3",
    },
    "documents": {"forcing.kind": "free", "data.separator": "log", "train.accumulate": 3, "model.dropout": 0.2},
    "random order": {**HALF, "data.order": "random", "forcing.choice": "best"},
}


@pytest.mark.parametrize("regime", REGIMES)
def test_a_run_that_was_cut_is_the_run_that_was_not(regime: str, tmp_path: Path) -> None:
    text = write_text(tmp_path)
    whole = evidence(start("gru", text, tmp_path / "whole", REGIMES[regime]))
    with pytest.raises(Cut):
        start("gru", text, tmp_path / "cut", REGIMES[regime], on_step=at(11, crash))
    trained = resume(tmp_path / "cut")
    assert trained.resumed_from == 8
    assert evidence(trained) == whole
    assert evidence(start("gru", text, tmp_path / "taught"))["weights"] != whole["weights"]


def test_the_truth_at_every_step_is_teacher_forcing(tmp_path: Path) -> None:
    """The same losses and, to the last digit or so, weights, though the machine reads through another door."""
    text, always = write_text(tmp_path), {**HALF, "forcing.start": 1.0}
    taught, coins = (start("gru", text, tmp_path / n, s) for n, s in (("a", {}), ("b", always)))
    told, tossed = evidence(taught), evidence(coins)
    assert (told["metrics"], told["best"]) == (tossed["metrics"], tossed["best"])
    weights = [load(run.path).model.state_dict() for run in (taught, coins)]
    # Gradients are summed over moments in another order. In float32 that leaves weights from 1/8 on equal to the bit,
    # and moves smaller ones by less than a last digit of those.
    torch.testing.assert_close(*weights, rtol=0.0, atol=2.0**-27)


def job(folder: Path, settings: dict[str, Any]) -> LanguageModelJob:
    text = write_text(folder)
    both = {**BASE, "data.text": str(text), "model.kind": "gru", **settings}
    spec = make_spec({}, [f"{name}={json.dumps(value)}" for name, value in both.items()])
    assert isinstance(spec, LanguageModelSpec)
    return LanguageModelJob.open(spec, Opening(folder / "run", Parallel()))


@pytest.mark.parametrize("separator", [None, "log"])
def test_windows_may_be_cut_into_rows_and_segments(separator: str | None, tmp_path: Path) -> None:
    """What is drawn and what is carried do not depend on how a window is cut, documents or not."""
    task = job(tmp_path, HALF if separator is None else {**HALF, "data.separator": separator})
    model = task.build().double()
    state = task.begin(model, 4)
    for number in range(3):
        window = task.window(number)
        whole, after = task.loss(model, window, slice(0, 4), slice(0, window.time), state)
        total = torch.zeros((), dtype=torch.float64)
        ends = []
        for some in (slice(0, 1), slice(1, 4)):
            part = rows(state, some)
            for times in (slice(0, 3), slice(3, window.time)):
                loss, part = task.loss(model, window, some, times, part)
                total = total + loss
            ends.append(part.given_BV)
        torch.testing.assert_close(total, whole.double(), rtol=1e-6, atol=0)
        torch.testing.assert_close(torch.cat(ends), after.given_BV, rtol=0, atol=1e-12)
        state = after


def test_a_document_begins_afresh_whoever_wrote_the_one_before(tmp_path: Path) -> None:
    """After a true beginning, nothing of what was fed back before it is left."""
    task = job(tmp_path, {"forcing.kind": "free", "data.separator": "log", "train.window": 90, "train.truncation": 90})
    model = task.build().double()
    window = task.window(0)
    end_id = task.corpus.tokenizer.end_id
    begins = (window.content.tokens.inputs_BT == end_id).nonzero().tolist()
    row, time = next((row, time) for row, time in begins if time > 5)
    state = task.begin(model, 4)
    assert isinstance(task.spec.forcing, FreeRunning)
    logits_BTV, _ = task._read_itself(task.spec.forcing, model, window, slice(0, 4), slice(0, window.time), state)
    fresh_BV, _ = model.step(torch.tensor([end_id]), model.init_state(1))
    torch.testing.assert_close(logits_BTV[row, time], fresh_BV[0], rtol=0, atol=1e-12)


def test_the_exposure_gap_of_a_text(tmp_path: Path) -> None:
    path = start("gru", write_text(tmp_path), tmp_path / "run", {"data.separator": "log"}).path
    said = call("evaluate", str(path), "--exposure", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert (found["unit"], found["prefix"], found["own"]) == ("nats", 64, 64)
    assert max(map(abs, found["gap_T"][: found["prefix"]])) < 1e-5
    assert max(map(abs, found["gap_T"][found["prefix"] : 128])) > 1e-3
    assert found["foreign_T"] is not None
    assert len(found["gap_T"]) == 192
    table = call("evaluate", str(path), "--exposure")
    assert "again" in table.out
    opened = load(path)
    assert isinstance(opened, LanguageModelRun)
    (tmp_path / "few.txt").write_text("the cat sat on")
    short = opened.exposure_gap(str(tmp_path / "few.txt"))
    assert 1 <= short.prefix < len(short.count_T) <= 15
    assert torch.equal(opened.exposure_gap(rows=3, seed=1).own_T, opened.exposure_gap(rows=3, seed=1).own_T)
    assert not torch.equal(opened.exposure_gap(rows=3, seed=1).own_T, opened.exposure_gap(rows=3, seed=2).own_T)


def test_the_exposure_gap_of_forecasts(tmp_path: Path) -> None:
    tiny = ["--set", "train.steps=3", "--set", "model.width=8", "--set", "forecast.horizon=5", "--quiet"]
    recursive = ["--set", "forecast.mode=recursive", "--set", "forecast.context=12"]
    said = call("train", "forecasting", *tiny, *recursive, "--out", str(tmp_path / "one"))
    assert said.code == 0, said.err
    found = json.loads(call("evaluate", str(tmp_path / "one"), "--exposure", "--json").out)
    assert found["prefix"] == 12
    assert len(found["gap_T"]) == 16
    assert max(map(abs, found["gap_T"][:12])) < 1e-4
    assert max(map(abs, found["gap_T"][12:])) > 1e-3
    said = call("train", "forecasting", *tiny, "--out", str(tmp_path / "direct"))
    assert said.code == 0, said.err
    said = call("evaluate", str(tmp_path / "direct"), "--exposure")
    assert said.code == 2
    assert "has no exposure gap" in " ".join(said.err.split())


def test_who_never_reads_itself_says_so(tmp_path: Path) -> None:
    lines = "".join(f"{'good' if n % 2 else 'bad'}\tword{n} {'fine' if n % 2 else 'poor'}\n" for n in range(40))
    (tmp_path / "rows.tsv").write_text(lines)
    tiny = ["--set", "train.steps=2", "--set", "data.label=0", "--set", "data.text=1", "--quiet"]
    said = call("train", "classification", "--data", str(tmp_path / "rows.tsv"), *tiny, "--out", str(tmp_path / "c"))
    assert said.code == 0, said.err
    said = call("evaluate", str(tmp_path / "c"), "--exposure")
    assert said.code == 2
    assert "never reads its own output" in " ".join(said.err.split())
    said = call("train", "markov", "--set", "forcing=free", "--out", str(tmp_path / "m"))
    assert said.code == 2
    assert "forcing has no meaning here" in said.err

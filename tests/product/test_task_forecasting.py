"""Forecasting: train, resume, evaluate; figures beside trivial ones."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import call
from forecasting_runs import RECURSIVE, SETTINGS, figures, opened, start, table
from forecasting_runs import series_files as series_files  # a fixture
from forecasting_runs import trained_run as trained_run  # a fixture
from tiny_run import Cut, at, crash, evidence, resume

from statewise.models import LINEAGE
from statewise.specs import UserError

# ------------------------------------------------------------------ train, resume


@pytest.mark.parametrize(
    "settings",
    [
        {"model.dropout": 0.2, "train.accumulate": 2, "data.channels": "shared", "data.targets": []},
        {**RECURSIVE, "forecast.forcing": "linear:8", "train.accumulate": 2, "forecast.anchor": "last"},
        {"model.kind": "window", "objective.kind": "quantile", "data.time_features": ["hour", "t"]},
    ],
    ids=["direct", "recursive", "window"],
)
def test_a_run_that_was_cut_is_the_run_that_was_not(settings: dict[str, Any], files: Path, tmp_path: Path) -> None:
    whole = evidence(start(files, tmp_path / "whole", settings))
    for cut in (5, 10):
        with pytest.raises(Cut):
            start(files, tmp_path / f"{cut}", settings, on_step=at(cut, crash))
        again = resume(tmp_path / f"{cut}")
        assert again.resumed_from is not None
        assert again.resumed_from < cut
        assert evidence(again) == whole


@pytest.mark.parametrize("kind", [row.spec.kind for row in LINEAGE if row.spec.learns == "gradient"])
@pytest.mark.parametrize("mode", ["direct", "recursive"])
def test_whatever_is_listed_forecasts(kind: str, mode: str, files: Path, tmp_path: Path) -> None:
    settings = {
        "model.kind": kind,
        "forecast.mode": mode,
        "train.steps": 2,
        "train.save_every": 2,
        "train.evaluate_every": 2,
        "train.evaluate_tokens": 100,
    }
    made = start(files, tmp_path / kind, settings)
    assert math.isfinite(made.outcome.evaluation["mse"])
    assert len(list(opened(made.path).predict(files / "load.csv"))) == 4


def test_other_data_under_the_same_name_are_refused(files: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.csv"
    own.write_text(table(240))
    with pytest.raises(Cut):
        start(files, tmp_path / "run", data=own, on_step=at(5, crash))
    own.write_text(table(240, wave=13.0))
    with pytest.raises(UserError, match="not the data that this run began with"):
        resume(tmp_path / "run")


def test_from_the_command_line(files: Path, tmp_path: Path) -> None:
    options = [word for path, value in SETTINGS.items() for word in ("--set", f"{path}={value}")]
    out = tmp_path / "run"
    said = call("train", "forecasting", "--data", str(files / "load.csv"), *options, "--out", str(out))
    assert said.code == 0, said.err
    assert "2 channels, 168 / 24 / 48 rows, period" in said.err
    table_ = call("evaluate", str(out))
    assert table_.code == 0, table_.err
    for name in ("repeat last", "drift", "least squares"):
        assert name in " ".join(table_.out.replace("│", " ").split())
    assert json.loads(call("evaluate", str(out), "--json").out)["part"] == "test part"


@pytest.mark.parametrize("mode", ["direct", "recursive"])
def test_row_b3_the_table_has_the_error_at_the_horizon(mode: str, files: Path, tmp_path: Path) -> None:
    """k = 1 and 4, and the horizon, be it one of these or not; in each row the last point of the error curve."""
    made = start(files, tmp_path / "run", {"forecast.mode": mode, "train.steps": 2, "train.save_every": 2}).path
    for horizon, steps in ((1, []), (4, ["1", "4"]), (6, ["1", "4", "6"])):
        found = opened(made).with_settings([f"forecast.horizon={horizon}"]).evaluate()
        report = found.report("it")
        assert [name for name in report.columns if name.startswith("MSE at")] == [f"MSE at {k}" for k in steps]
        if steps:
            assert report.rows[0][-1] == f"{found.curve[-1]:.4f}"
            assert report.rows[1][-1] == f"{found.baselines[report.rows[1][0]]['mse_at'][-1]:.4f}"
    said = call("evaluate", str(made), "--set", "forecast.horizon=6", "--json")
    assert list(json.loads(said.out)["at"]) == ["1", "4", "6"]


# ------------------------------------------------------------------ evaluate


def test_figures_of_both_parts_stand_beside_the_trivial_ones(trained: Path) -> None:
    test, held = figures(trained), figures(trained, part="validation")
    assert (test.part, held.part) == ("test part", "validation part")
    assert (test.windows, held.windows) == (48 - 3, 24 - 3)
    assert test.period == 12
    assert set(test.baselines) == {"repeat last", "seasonal naive", "drift", "least squares AR(12)"}
    assert test.mse is not None
    assert test.mse < test.baselines["repeat last"]["mse"]
    assert test.mse == pytest.approx(np.mean(test.curve))
    assert test.at["4"]["mse_to"] == pytest.approx(test.mse)
    assert test.mse_original == pytest.approx(test.mse * opened(trained).known.scaling.std_C[0] ** 2)
    assert test.coverage.keys() == {"50%", "80%", "95%"}
    assert test.coverage["50%"]["width"] < test.coverage["95%"]["width"]


def test_baselines_are_those_of_the_windows_by_hand(trained: Path, files: Path) -> None:
    """Repeat-last and seasonal-naive of the test part, counted without any of this code."""
    with (files / "load.csv").open() as stream:
        values = np.array([float(row["load"]) for row in csv.DictReader(stream)])
    train_ = values[:168]
    scaled = (values - train_.mean()) / train_.std()
    origins = range(192, 240 - 4 + 1)
    last = np.mean([(scaled[o + k] - scaled[o - 1]) ** 2 for o in origins for k in range(4)])
    season = np.mean([(scaled[o + k] - scaled[o + k - 12]) ** 2 for o in origins for k in range(4)])
    found = figures(trained).baselines
    assert found["repeat last"]["mse"] == pytest.approx(last, rel=1e-9)
    assert found["seasonal naive"]["mse"] == pytest.approx(season, rel=1e-9)


@pytest.mark.parametrize("objective", ["squared", "gaussian", "student", "quantile"])
@pytest.mark.parametrize("mode", ["direct", "recursive"])
def test_every_objective_both_ways(objective: str, mode: str, files: Path, tmp_path: Path) -> None:
    settings = {"objective.kind": objective, "forecast.mode": mode, "train.steps": 4, "forecast.stride": 8}
    found = figures(start(files, tmp_path / "run", settings).path)
    assert found.mse is not None
    assert (found.crps is None) == (objective == "squared")
    assert set(found.coverage) == (set() if objective == "squared" else {"50%", "80%", "95%"})
    assert (found.one_step_mse is None) == (mode == "direct")
    named = {"gaussian": found.nats, "student": found.nats, "quantile": found.pinball, "squared": found.mse}
    assert named[objective] is not None


def test_any_horizon_after_training(trained: Path, files: Path) -> None:
    said = call("evaluate", str(trained), "--set", "forecast.horizon=10", "--set", "forecast.stride=4", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert len(found["curve"]) == 10
    assert found["crps"] is None  # a direct model does not say how sure it is beyond its horizon
    assert found["curve"][:1] != found["curve"][9:]
    refused = call("evaluate", str(trained), "--set", "model.width=9")
    assert refused.code == 2
    assert "data.decimal, forecast.horizon, forecast.stride, forecast.paths" in " ".join(refused.err.split())


def test_other_files_are_read_at_the_scale_of_training(trained: Path, files: Path, tmp_path: Path) -> None:
    other, gone = tmp_path / "other.csv", tmp_path / "gone.csv"
    other.write_text(table(60, first=300))
    gone.write_text(table(240))
    alone = start(files, tmp_path / "alone", data=gone).path
    gone.unlink()  # a folder needs nothing of what it was trained on
    assert set(opened(alone).evaluate(other).baselines) == set(figures(trained).baselines)
    found = opened(trained).evaluate(other)
    assert (found.part, found.windows) == ("files", 60 - 12 - 4 + 1)
    with pytest.raises(UserError, match="is a part of the training data"):
        opened(trained).evaluate(other, part="test")


def test_a_backtest_goes_through_the_part_in_order(trained: Path) -> None:
    found = opened(trained).backtest(folds=3)
    assert [one.windows for one in found] == [16 - 3] * 3
    assert [one.part for one in found] == [f"test part, stretch {i} of 3" for i in (1, 2, 3)]
    assert len({one.mse for one in found}) == 3


def test_holes_are_bridged_better_than_forecast(trained: Path) -> None:
    found = opened(trained).interpolation(gap=3, holes=12)
    assert found.holes == 12
    assert found.bridge < found.last
    assert found.bridge < found.forecast

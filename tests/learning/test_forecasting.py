"""Forecasters learn the embedded series, know how sure they are, and notice when time itself matters."""

from pathlib import Path
from typing import Any

import pytest
from example import example

import statewise
from statewise.tasks.forecasting import ForecastEvaluation, ForecastingRun
from statewise.training.progress import Silent

ROOT = Path(__file__).parents[2]


def learn(settings: dict[str, Any], *, out: Path) -> ForecastingRun:
    trained = statewise.train("forecasting", settings=settings, out=out, display=Silent())
    run = statewise.load(trained.path)
    assert isinstance(run, ForecastingRun)
    return run


def mse(found: ForecastEvaluation) -> float:
    assert found.mse is not None
    return found.mse


def test_the_recipe_beats_every_baseline_and_its_intervals_hold(tmp_path: Path) -> None:
    short = {"train.steps": 200, "train.evaluate_every": 100, "train.save_every": 200}
    found = learn(short, out=tmp_path / "run").evaluate()
    for name, one in found.baselines.items():
        assert mse(found) < one["mse"], name
    assert mse(found) < 0.65 * found.baselines["seasonal naive"]["mse"]
    # The noise is a part of what is to be forecast: nobody can be better than its variance.
    assert found.mse_original is not None
    assert found.mse_original > 0.3**2
    for level, nominal in (("50%", 0.5), ("80%", 0.8), ("95%", 0.95)):
        assert abs(found.coverage[level]["share"] - nominal) < 0.1


@pytest.mark.slow
def test_chaos_is_foreseen_for_a_while(tmp_path: Path) -> None:
    """Mackey-Glass in a closed loop: far better than its last value at first, and worse with every step."""
    settings = {
        "data.series": "mackey_glass",
        "data.length": 2000,
        "objective.kind": "squared",
        "forecast.mode": "recursive",
        "forecast.anchor": "last",
        "forecast.context": 48,
        "forecast.horizon": 64,
        "forecast.stride": 16,
        "model.width": 32,
        "train.steps": 250,
        "train.lr": 1e-2,
        "train.batch": 16,
        "train.evaluate_every": 250,
        "train.evaluate_tokens": 5000,
    }
    found = learn(settings, out=tmp_path / "run").evaluate()
    last = found.baselines["repeat last"]["at"]
    assert found.at["1"]["mse"] < 0.02 * last["1"]["mse"]
    assert found.at["4"]["mse"] < 0.1 * last["4"]["mse"]
    assert found.at["16"]["mse"] < 0.5 * last["16"]["mse"]
    assert found.at["1"]["mse"] < found.at["4"]["mse"] < found.at["16"]["mse"] < found.at["64"]["mse"]
    assert found.one_step_mse is not None
    assert found.one_step_mse < 0.05 * mse(found)  # given the truth it stays good: the loop is what costs


def test_a_linear_window_model_is_least_squares(tmp_path: Path) -> None:
    """One step ahead, an autoregression's optimum is known, and gradient descent finds it."""
    settings = {
        "data.series": "noisy_sine",
        "data.length": 2000,
        "data.period": 1,
        "model.kind": "window",
        "model.order": 8,
        "model.width": 8,
        "model.activation": "linear",
        "objective.kind": "squared",
        "forecast.context": 8,
        "forecast.horizon": 1,
        "forecast.anchor": "none",
        "train.steps": 600,
        "train.lr": 1e-2,
        "train.batch": 128,
        "train.weight_decay": 0.0,
    }
    found = learn(settings, out=tmp_path / "run").evaluate()
    assert abs(mse(found) / found.baselines["least squares AR(8)"]["mse"] - 1) < 0.02


@pytest.mark.slow
def test_time_helps_where_the_dynamics_change() -> None:
    stationarity = example("stationarity")
    made = stationarity.cases(1600)
    found = {name: stationarity.tested(series, steps=200, seeds=3) for name, series in made.items()}
    assert [one.stationary for one in found.values()] == [True, True, False, False]
    changed = found["0.9 becomes -0.9 halfway"]
    assert changed.with_time < 0.8 * changed.without
    assert changed.blocks == 16
    assert all(gain > 0 for gain in changed.gain_by_seed)

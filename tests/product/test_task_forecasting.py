"""Forecasting from the command line: train, resume, evaluate, predict; files as people have them, and bad ones."""

import csv
import json
import math
import shutil
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
from statewise.tasks.forecasting import ForecastEvaluation, ForecastingRun
from statewise.training.progress import Silent

SETTINGS: dict[str, Any] = {
    "model.width": 8,
    "forecast.context": 12,
    "forecast.horizon": 4,
    "forecast.anchor": "none",
    "forecast.paths": 8,
    "train.steps": 12,
    "train.batch": 4,
    "train.warmup": 2,
    "train.log_every": 1,
    "train.evaluate_every": 4,
    "train.save_every": 3,
}


def table(rows: int, *, holes: tuple[int, ...] = (), wave: float = 12.0, first: int = 0) -> str:
    lines = ["date,load,wind"]
    for i in range(first, first + rows):
        load = "" if i in holes else f"{20 + 5 * math.sin(2 * math.pi * i / wave) + 0.01 * i:.4f}"
        lines.append(f"2024-{1 + i // 672:02}-{1 + i % 672 // 24:02} {i % 24:02}:00,{load},{math.cos(i):.4f}")
    return "\n".join(lines) + "\n"


def rolls(folder: Path) -> Path:
    """Chords that follow each other, as MATLAB files of piano rolls have them."""
    from scipy.io import savemat

    generator = np.random.default_rng(0)
    chords = np.eye(6)[[0, 2, 4, 1, 3, 5]] + np.eye(6)[[1, 3, 5, 2, 4, 0]]
    held: dict[str, Any] = {}
    for name, count in (("traindata", 12), ("validdata", 4), ("testdata", 4)):
        cells = np.empty((1, count), dtype=object)
        for i in range(count):
            begin, length = generator.integers(0, 6), generator.integers(2, 9)
            cells[0, i] = chords[(begin + np.arange(length)) % 6]
        held[name] = cells
    savemat(folder / "rolls.mat", held)
    return folder / "rolls.mat"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("series")
    (folder / "load.csv").write_text(table(240))
    (folder / "holes.csv").write_text(table(240, holes=(20, 21, 22, 50, 150, 170, 171, 230)))
    return folder


def start(files: Path, out: Path, settings: dict[str, Any] | None = None, **more: Any) -> Trained:
    merged = {**SETTINGS, "data.targets": ["load"], **(settings or {})}
    return train("forecasting", settings=merged, out=out, **{"data": files / "load.csv", "display": Silent(), **more})


def opened(path: Path) -> ForecastingRun:
    run = load(path)
    assert isinstance(run, ForecastingRun)
    return run


def figures(path: Path, **options: Any) -> ForecastEvaluation:
    return opened(path).evaluate(**options)


@pytest.fixture(scope="module")
def trained(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(files, tmp_path_factory.mktemp("run") / "a", {"train.steps": 60, "train.lr": 0.02}).path


RECURSIVE = {"forecast.mode": "recursive", "objective.kind": "student"}


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
    assert "only forecast.horizon, forecast.stride, forecast.paths can be changed" in " ".join(refused.err.split())


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


# ------------------------------------------------------------------ predict


def test_the_next_rows_have_the_layout_of_the_file(trained: Path, files: Path, tmp_path: Path) -> None:
    said = call("predict", str(trained), str(files / "load.csv"), "--out", str(tmp_path / "next.csv"))
    assert said.code == 0, said.err
    rows = list(csv.DictReader((tmp_path / "next.csv").read_text().splitlines()))
    assert list(rows[0]) == ["date", "load", "wind"]
    assert [row["date"] for row in rows] == [f"2024-01-11 {hour:02}:00" for hour in range(4)]
    assert all(10 < float(row["load"]) < 40 for row in rows)
    assert {row["wind"] for row in rows} == {""}


def test_json_has_a_row_for_every_moment_and_channel(trained: Path, files: Path) -> None:
    said = call("predict", str(trained), str(files / "load.csv"), "--json", "--set", "forecast.horizon=6")
    assert said.code == 0, said.err
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[0]["time"] == "2024-01-11T00:00:00"
    assert rows[0]["channel"] == "load"
    assert rows[0]["quantiles"]["0.1"] < rows[0]["mean"] < rows[0]["quantiles"]["0.9"]
    assert rows[5]["quantiles"]["0.1"] is None  # beyond the trained horizon


@pytest.mark.parametrize("mode", ["direct", "recursive"])
def test_several_series_short_ones_too_are_all_continued(mode: str, files: Path, tmp_path: Path) -> None:
    lines = ["id;t;x;y"]
    for name, length in (("a", 80), ("b", 60), ("c", 3), ("d", 1)):
        lines += [f"{name};{i};{math.sin(i / 2):.4f};{'' if i % 7 == 3 else i}" for i in range(length)]
    file = tmp_path / "many.csv"
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n")
    long = tmp_path / "long.csv"
    long.write_text("\n".join(line for line in lines if line[0] in "iab"))
    settings = {"data.id": "id", "data.time": "t", "data.targets": [], "forecast.mode": mode}
    run = opened(start(files, tmp_path / "run", settings, data=long).path)
    assert run.known.gaps
    some = run.evaluate(file)
    assert (some.too_short, some.windows) == (2, 80 - 15 + 60 - 15)
    said = list(run.predict_lines(file))
    assert said[0] == "id;t;x;y"
    assert [line.split(";")[:2] for line in said[1:]] == [
        [name, str(t)] for name, end in (("a", 80), ("b", 60), ("c", 3), ("d", 1)) for t in range(end, end + 4)
    ]
    assert len(list(run.predict(file))) == 4 * 4 * 2


def test_covariates_must_be_known_for_the_future(files: Path, tmp_path: Path) -> None:
    run = opened(start(files, tmp_path / "run", {"data.covariates": ["wind"]}).path)
    with pytest.raises(UserError, match="4 are not"):
        list(run.predict(files / "load.csv"))
    longer = tmp_path / "longer.csv"
    longer.write_text(table(244, holes=(240, 241, 242, 243)))
    rows = list(run.predict(longer))
    assert [row["time"] for row in rows] == [f"2024-01-11T{hour:02}:00:00" for hour in range(4)]
    lines = list(csv.DictReader(run.predict_lines(longer)))
    assert [float(row["wind"]) for row in lines] == pytest.approx([math.cos(i) for i in range(240, 244)], abs=1e-4)


def test_holes_are_filled(trained: Path, files: Path, tmp_path: Path) -> None:
    run = opened(start(files, tmp_path / "run", {"train.steps": 150, "train.lr": 0.02}, data=files / "holes.csv").path)
    rows = list(run.interpolate(files / "holes.csv"))
    assert [row["time"][5:13] for row in rows][:4] == ["01-01T20", "01-01T21", "01-01T22", "01-03T02"]
    assert len(rows) == 8
    hours = [int(row["time"][8:10]) * 24 - 24 + int(row["time"][11:13]) for row in rows]
    truth = [20 + 5 * math.sin(2 * math.pi * hour / 12) + 0.01 * hour for hour in hours]
    assert np.abs(np.array([row["mean"] for row in rows]) - truth).mean() < 1.5
    assert list(opened(trained).interpolate(files / "load.csv")) == []


# ------------------------------------------------------------------ frames of bits


def test_piano_rolls(files: Path, tmp_path: Path) -> None:
    settings = {
        "objective.kind": "bernoulli",
        "forecast.context": "all",
        "forecast.mode": "recursive",
        "data.scaling": "none",
        "data.targets": [],
        "train.steps": 150,
        "train.lr": 0.03,
        "train.evaluate_every": 50,
    }
    made = start(files, tmp_path / "run", settings, data=rolls(tmp_path))
    found = figures(made.path)
    assert found.nats_per_frame is not None
    assert found.nats_per_frame < 0.5 * found.baselines["each bit's own Markov chain"]["nats_per_frame"]
    assert found.baselines["uniform (knows nothing)"]["nats_per_frame"] == pytest.approx(6 * math.log(2))
    assert "nats per frame" in call("evaluate", str(made.path)).out
    rows = list(opened(made.path).predict(tmp_path / "rolls.mat"))
    assert len(rows) == 20 * 4 * 6
    assert all(0 <= row["mean"] <= 1 for row in rows)
    np.save(tmp_path / "loud.npy", np.full((5, 6), 0.5))
    with pytest.raises(UserError, match=r"'channel 0' is 0\.5 at 0, but objective\.kind = bernoulli"):
        list(opened(made.path).predict(tmp_path / "loud.npy"))


def test_series_read_from_their_beginning(files: Path, tmp_path: Path) -> None:
    """Many short ones, of unequal lengths: one step ahead everywhere, and one closed loop each."""
    waves = {f"{n}": np.sin(np.arange(20 + n) / 2 + n)[:, None] for n in range(12)}
    np.savez(tmp_path / "waves.npz", **waves)
    settings = {
        "forecast.context": "all",
        "forecast.mode": "recursive",
        "data.targets": [],
        "data.split": "whole:8/2/2",
        "train.steps": 120,
        "train.lr": 0.02,
    }
    made = start(files, tmp_path / "run", settings, data=tmp_path / "waves.npz")
    found = figures(made.path)
    assert (found.windows, found.horizon, len(found.curve)) == (2, 4, 4)
    assert found.one_step_mse is not None
    assert found.one_step_mse < 0.5 * found.baselines["repeat last"]["at"]["1"]["mse"]
    assert found.nats is not None
    assert len(list(opened(made.path).predict(tmp_path / "waves.npz"))) == 12 * 4
    settings |= {"data.split": "0.7/0.1/0.2", "train.steps": 4}
    rows = opened(start(files, tmp_path / "rows", settings).path).evaluate()
    assert (rows.windows, rows.horizon) == (1, 4)


# ------------------------------------------------------------------ pictures


@pytest.mark.parametrize("what", ["forecast", "error"])
def test_pictures(what: Any, trained: Path, tmp_path: Path) -> None:
    made = opened(trained).plot(tmp_path / f"{what}.svg", what=what)
    assert made.read_text().count("<path") > 10
    assert opened(trained).plot(tmp_path / f"{what}.png", what=what).read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(UserError, match="no kind of picture"):
        opened(trained).plot(tmp_path / "x.txt", what=what)


# ------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("settings", "text", "expected"),
    [
        ({}, "date,load\n2024-01-01,1\n2024-01-02,x\n", "bad.csv:3: column 'load' holds 'x', which is not a number"),
        ({"data.targets": "lod"}, table(100), "there is no column 'lod'"),
        ({"forecast.context": 500}, table(100), "no series is long enough for a context of 500"),
        ({"data.split": "80/10/90"}, table(100), "asks for 180"),
        ({"data.split": "0.9/x"}, table(100), "split '0.9/x' is not valid"),
        ({"data.split": "1.0/0"}, table(100), "nothing is held out"),
        ({"data.split": "97/3"}, table(100), "no series is long enough for a context of 12 and a horizon of 4"),
        ({"data.time_features": "hours"}, table(100), "no time feature 'hours'"),
        ({"data.missing": "refuse"}, table(100, holes=(3,)), "1 values are missing"),
        (
            {
                "objective.kind": "bernoulli",
                "forecast.context": "all",
                "forecast.mode": "recursive",
                "data.scaling": "none",
            },
            table(100),
            "takes 0 and 1 alone",
        ),
        ({"train.truncation": 8}, table(100), "train.truncation has no meaning here"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 80 else None,
)
def test_mistakes_are_named(settings: dict[str, Any], text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(text)
    merged = {**SETTINGS, **settings}
    options = [word for path, value in merged.items() for word in ("--set", f"{path}={value}")]
    said = call("train", "forecasting", "--data", str(file), *options, "--out", str(tmp_path / "run"))
    assert said.code == 2, said.err
    assert expected in " ".join(said.err.split())
    assert not (tmp_path / "run").exists()


def test_another_file_needs_the_same_columns(trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "other.csv"
    file.write_text("date,power\n2024-01-01,1\n2024-01-02,2\n")
    said = call("predict", str(trained), str(file))
    assert said.code == 2
    assert "there is no column 'load'" in said.err


@pytest.mark.parametrize("name", ["series.json", "model.safetensors"])
def test_a_damaged_folder_is_refused(name: str, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    for path in (tmp_path / "run").rglob(name):
        path.write_bytes(path.read_bytes()[:-1] + b"#")
    said = call("evaluate", str(tmp_path / "run"))
    assert said.code == 2
    assert name in said.err


def test_a_forecaster_does_not_generate(trained: Path) -> None:
    said = call("generate", str(trained))
    assert said.code == 2
    assert "a forecasting run does not generate" in said.err

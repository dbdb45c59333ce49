"""Forecasts of files as people have them, pictures of them, and what bad input is told."""

import csv
import json
import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import call
from forecasting_runs import SETTINGS, figures, opened, rolls, start, table
from forecasting_runs import series_files as series_files  # a fixture
from forecasting_runs import trained_run as trained_run  # a fixture

from statewise.data.embedded.series import switching
from statewise.data.series import read_series
from statewise.specs import UserError
from statewise.tasks import train
from statewise.training.progress import Silent

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


def test_the_unit_of_a_covariate_changes_nothing(files: Path, tmp_path: Path) -> None:
    """Its scale is learned from the training part, as that of values is: pascals or bars, all one."""
    header, *rows = table(244, holes=(240, 241, 242, 243)).splitlines()
    cells = [row.split(",") for row in rows]
    forecasts = []
    for unit in (1.0, 1e6):
        file = tmp_path / f"{unit:g}.csv"
        file.write_text(
            "\n".join([header, *(f"{date},{load},{unit * float(wind) + 3 * unit}" for date, load, wind in cells)])
        )
        made = start(files, tmp_path / f"run-{unit:g}", {"data.covariates": ["wind"]}, data=file)
        forecasts.append([row["mean"] for row in opened(made.path).predict(file)])
    assert forecasts[0] == pytest.approx(forecasts[1], rel=1e-4)


def test_forecasts_go_on_in_the_style_of_the_file(files: Path, tmp_path: Path) -> None:
    """Days first, semicolons and decimal commas: the rows can be appended, and the whole read again."""
    days = [datetime(2024, 1, 1) + timedelta(days=i) for i in range(120)]
    rows = [f"{day:%d.%m.%Y};{1234 + i},5" for i, day in enumerate(days)]
    file = tmp_path / "absatz.csv"
    file.write_text("\n".join(["Tag;Absatz", *rows]) + "\n")
    made = start(files, tmp_path / "run", {"data.targets": []}, data=file)
    means = [row["mean"] for row in opened(made.path).predict(file)]
    header, *said = opened(made.path).predict_lines(file)
    assert header == "Tag;Absatz"
    assert [line.split(";")[0] for line in said] == [f"{day}.2024" for day in ("30.04", "01.05", "02.05", "03.05")]
    with file.open("a") as stream:
        stream.write("\n".join(said) + "\n")
    (series,) = read_series(file)
    assert series.time_T[-1] == np.datetime64("2024-05-03")
    np.testing.assert_allclose(series.values_TC[:, 0], [*(1234.5 + np.arange(120)), *means], rtol=1e-9)


def test_a_value_beyond_all_measure_is_refused(trained: Path, files: Path, tmp_path: Path) -> None:
    """In 32 bits it would be infinite, and the forecast whatever becomes of that."""
    far = tmp_path / "far.csv"
    far.write_text((files / "load.csv").read_text().replace("2024-01-02 03:00,", f"2024-01-02 03:00,{10**40}", 1))
    for verb in (("predict", str(trained), str(far)), ("evaluate", str(trained), "--data", str(far))):
        said = call(*verb)
        assert said.code == 2
        assert "deviations from the mean of the training part" in " ".join(said.err.split())
        assert "2024-01-02T03:00:00" in said.err


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
    with pytest.raises(UserError, match="not a known format of pictures"):
        opened(trained).plot(tmp_path / "x.txt", what=what)


def test_pictures_as_numbers_and_stretches_from_the_command_line(trained: Path, tmp_path: Path) -> None:
    drawn, curve = tmp_path / "forecast.csv", tmp_path / "error.csv"
    said = call("evaluate", str(trained), "--folds", "2", "--plot", str(drawn), "--plot-error", str(curve), "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert [one["part"] for one in found] == ["test part, stretch 1 of 2", "test part, stretch 2 of 2"]
    assert [one["mse"] for one in found] == [one.mse for one in opened(trained).backtest(folds=2)]
    run = opened(trained)
    with curve.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row[run.spec.name]) for row in rows] == pytest.approx(run.evaluate().curve)
    assert {"repeat last", "seasonal naive", "drift"} < set(rows[0])
    with drawn.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [bool(row["forecast"]) for row in rows][-run.spec.forecast.horizon :] == [True] * run.spec.forecast.horizon
    assert not rows[0]["forecast"]
    assert float(rows[0]["truth"])
    other = call("evaluate", str(trained), "--data", str(drawn), "--folds", "2")
    assert (other.code, "leave out --data" in other.err) == (2, True)


def test_holes_are_filled_from_the_command_line(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "hole.csv").write_text(table(240, holes=(150,)))
    header, *filled = call("predict", str(trained), str(tmp_path / "hole.csv"), "--fill").out.splitlines()
    assert header == "series,time,channel,mean"
    expected = list(opened(trained).interpolate(tmp_path / "hole.csv"))
    assert len(filled) == len(expected) == 1
    assert filled[0].split(",")[-2:] == ["load", str(expected[0]["mean"])]
    told = json.loads(call("predict", str(trained), str(tmp_path / "hole.csv"), "--fill", "--json").out)
    assert told["forecast"] == expected[0]["forecast"]


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


@pytest.mark.slow
def test_whether_time_itself_matters(tmp_path: Path) -> None:
    """A law that turns round halfway, and one that does not; other runs have no time."""
    for name, coefficients in (("turns", (0.9, -0.9)), ("stays", (0.9,))):
        series = switching(800, coefficients=coefficients, every=800 // len(coefficients))
        rows = "\n".join(f"{value}" for value in series.values_TC[:, 0])
        (tmp_path / f"{name}.csv").write_text(f"x\n{rows}\n")
        settings = {"train.steps": 2, "data.time": "none", "forecast.context": 8, "forecast.horizon": 2}
        made = train(
            "forecasting", settings=settings, data=tmp_path / f"{name}.csv", out=tmp_path / name, display=Silent()
        )
        said = call("evaluate", str(made.path), "--stationarity", "--json")
        found = json.loads(said.out)
        assert (found["low"] > 0) == (name == "turns"), found
    said = call("evaluate", str(tmp_path / "turns"), "--stationarity")
    assert "the law changes with it and the series is not stationary" in " ".join(said.out.split())
    assert (
        "leave the other options out" in call("evaluate", str(tmp_path / "turns"), "--stationarity", "--folds", "2").err
    )


def test_a_file_with_a_series_a_line_is_learned_from_and_continued(tmp_path: Path) -> None:
    """In M4's layout, with the last rows of each series held out and each in its own units."""
    random = np.random.default_rng(0)
    lines = ["V1," + ",".join(f"V{n}" for n in range(2, 62))]
    for name, size, rows in (("H1", 1.0, 60), ("H2", 1000.0, 40)):
        values = size * (5 + np.sin(np.arange(rows) / 2) + 0.1 * random.standard_normal(rows))
        lines.append(",".join([name, *(f"{value:.4f}" for value in values), *[""] * (60 - rows)]))
    path = tmp_path / "wide.csv"
    path.write_text("\n".join(lines) + "\n")
    settings = {**SETTINGS, "data.layout": "rows", "data.split": "last:6/8"}
    trained = train("forecasting", settings=settings, data=path, out=tmp_path / "run", display=Silent())
    run = opened(trained.path)
    found = run.evaluate()
    assert (found.windows, found.units) == (2 * (8 - 4 + 1), "deviations of each series")
    answers = [line.split(",") for line in run.predict_lines(path)]
    assert [(row[0], len(row)) for row in answers] == [("H1", 5), ("H2", 5)]
    assert all(0 < float(cell) < 20 for cell in answers[0][1:])
    assert all(1000 < float(cell) < 20_000 for cell in answers[1][1:])

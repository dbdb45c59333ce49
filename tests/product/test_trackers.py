"""Experiment trackers, offline: each is the real library where it is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import call

from statewise.training import trackers

SETTINGS = ("--steps", "4", "--quiet", "--set", "model.width=8", "--set", "train.log_every=2", "--set", "train.batch=2")


class Recorder:
    """What a tracker was told."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.closed = False

    def open(self, kind: str, folder: Path, settings: Any) -> trackers.Tracker:
        self.settings = dict(settings)
        return trackers.Tracker(lambda step, values: self.rows.append((step, dict(values))), self.close)

    def close(self) -> None:
        self.closed = True


def test_a_tracker_gets_what_the_run_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr("statewise.training.loop.open_tracker", recorder.open)
    monkeypatch.setattr("statewise.tasks.launch.refuse_missing", lambda kinds: None)
    done = call("train", "gru", "--out", str(tmp_path / "run"), "--log", "wandb", *SETTINGS)
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    told = [{"step": step, **values} for step, values in recorder.rows]
    assert all(line in told for line in lines)
    assert recorder.settings["model"]["width"] == 8
    assert recorder.closed


def test_one_that_is_not_installed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    done = call("train", "gru", "--out", str(tmp_path / "run"), "--log", "mlflow", *SETTINGS)
    assert (done.code, "mlflow, which is not installed" in done.err) == (2, True)
    assert call("train", "gru", "--log", "csv", *SETTINGS).code == 2


@pytest.mark.parametrize("kind", ["wandb", "mlflow", "trackio"])
def test_the_real_library_offline(kind: str, tmp_path: Path) -> None:
    pytest.importorskip(kind)
    local = {
        "WANDB_MODE": "offline",
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(),
        "TRACKIO_DIR": str(tmp_path / "trackio"),
    }
    command = [sys.executable, "-m", "statewise", "train", "gru", "--out", "run", "--log", kind, *SETTINGS]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **local}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    match kind:
        case "wandb":
            assert any(path.stat().st_size > 1000 for path in tmp_path.rglob("*.wandb"))
        case "mlflow":
            names = {path.name for path in tmp_path.glob("mlruns/*/*/metrics/*")}
            assert {"loss", "validation_perplexity"} <= names
        case "trackio":
            assert list((tmp_path / "trackio").rglob("*.db")) or list((tmp_path / "trackio").rglob("*.parquet"))

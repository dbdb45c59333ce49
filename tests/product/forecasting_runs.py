"""Small series in files, and runs that forecast them."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from statewise import load
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


@pytest.fixture(scope="module", name="files")
def series_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


@pytest.fixture(scope="module", name="trained")
def trained_run(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(files, tmp_path_factory.mktemp("run") / "a", {"train.steps": 60, "train.lr": 0.02}).path


RECURSIVE = {"forecast.mode": "recursive", "objective.kind": "student"}

"""The network that reads a grid from its four corners knows handwritten digits."""

from pathlib import Path
from typing import Any

import pytest

import statewise
from statewise.training.progress import Silent


def accuracy(out: Path, settings: dict[str, Any]) -> float:
    short = {"train.steps": 120, "train.evaluate_every": 40}
    trained = statewise.train("digits", settings={**short, **settings}, out=out, display=Silent())
    found = statewise.load(trained.path).evaluate()._asdict()
    assert found["majority_accuracy"] < 0.12
    return float(found["accuracy"])


@pytest.mark.slow
def test_the_recipe_knows_digits(tmp_path: Path) -> None:
    assert accuracy(tmp_path / "grid", {}) > 0.95

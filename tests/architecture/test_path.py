"""How many files of the package a training step and a generated token enter: a reader has to follow them all."""

from pathlib import Path
from typing import Any

import pytest
from package_source import ROOT


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return pytest.importorskip("house", reason="benchmarks/ is not here")


def test_a_training_step_and_a_token_enter_few_files(house: Any, tmp_path: Path) -> None:
    step = house.training_step(tmp_path)
    assert len(step.files) <= 20, sorted(step.files)
    assert "training/loop.py" in step.files, "the step was followed"
    token = house.generated_token(tmp_path)
    assert len(token.files) <= 20, sorted(token.files)
    assert "decoding/generate.py" in token.files, "the token was followed"

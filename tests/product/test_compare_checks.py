"""A study that cannot run is refused before its first trial starts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import call

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")


def slow(words: str, told: str, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(words, told, marks=(pytest.mark.slow, *marks))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--set metric=blue", "metric 'blue' is not a metric of a translation run"),
        slow('--set also=["blue"]', "also: 'blue' is not a metric of a translation run"),
        slow("--set base.train.judge=blue", "train.judge = 'blue' is not a metric of this task"),
        ("--data nowhere.tsv", "'nowhere.tsv' does not exist"),
        slow("--data hub:nowhere:train --data hub:nowhere:test", "nowhere"),
        pytest.param("--set base.train.device=cuda", "PyTorch sees no GPU here", marks=NO_GPU),
        slow("--set base.train.graph=always", "graphs are for CUDA", NO_GPU),
    ],
)
def test_nothing_is_started(words: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    said = call("compare", "ladder", *words.split())
    assert said.code == 2
    assert told in said.err
    assert not list(tmp_path.iterdir())

"""A study that cannot run is refused before its first trial starts."""

from pathlib import Path

import pytest
import torch
from tiny_run import call

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--set metric=blue", "metric 'blue' is not a metric of a translation run"),
        ('--set also=["blue"]', "also: 'blue' is not a metric of a translation run"),
        ("--set base.train.judge=blue", "train.judge = 'blue' is not a metric of this task"),
        ("--data nowhere.tsv", "'nowhere.tsv' does not exist"),
        ("--data hub:nowhere:train --data hub:nowhere:test", "nowhere"),
        pytest.param("--set base.train.device=cuda", "PyTorch sees no GPU here", marks=NO_GPU),
        pytest.param("--set base.train.graph=always", "graphs are for CUDA", marks=NO_GPU),
    ],
)
def test_nothing_is_started(words: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    said = call("compare", "ladder", *words.split())
    assert said.code == 2
    assert told in said.err
    assert not list(tmp_path.iterdir())

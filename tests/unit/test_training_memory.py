"""What does not fit into memory is refused before anything is allocated."""

from pathlib import Path

import pytest
import torch

from statewise.specs import TrainSpec, UserError
from statewise.tasks import train
from statewise.training import device as memory
from statewise.training.progress import Silent

CPU = torch.device("cpu")


def test_a_model_that_does_not_fit_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "memory_of", lambda device: 2**34)
    with pytest.raises(
        UserError, match=r"the model has [\d,]+ parameters: to train them takes [\d,]+ GiB, and there are"
    ):
        train("lstm", settings={"model.width": 2**20}, out=tmp_path / "run", display=Silent())
    assert not (tmp_path / "run").exists()


def test_what_an_optimiser_keeps_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory_of", lambda device: 1200)
    for optimizer, most in (("adamw", 75), ("muon", 100), ("asgd", 100), ("sgd", 150)):
        spec = TrainSpec(optimizer=optimizer)
        memory.refuse_what_does_not_fit(most, spec, CPU)
        with pytest.raises(UserError):
            memory.refuse_what_does_not_fit(most + 1, spec, CPU)


def test_the_limit_of_a_container_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = memory.memory_of(CPU)
    assert whole is None or whole > 2**28
    monkeypatch.setattr(memory, "_LIMIT", tmp_path / "memory.max")
    (tmp_path / "memory.max").write_text("4096\n")
    assert memory.memory_of(CPU) == 4096

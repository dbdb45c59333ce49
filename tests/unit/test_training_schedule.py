"""The rate, the plateau, patience, and the average that NT-ASGD starts."""

import math
from pathlib import Path

import pytest
import torch
from tiny_task import TokenTask, distance, spec, tiny

from statewise.training import RunFolder, fit
from statewise.training.checkpoint import read_tensors
from statewise.training.folder import newest_verified
from statewise.training.progress_state import Plateau, learning_rate


def rates(**settings: object) -> list[float]:
    made = spec(lr=1.0, **settings)
    return [learning_rate(step, made, Plateau()) for step in range(1, made.steps + 1)]


def test_warmup_rises_linearly_to_the_rate() -> None:
    assert rates(steps=6, warmup=4, schedule="constant") == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_ends_where_it_says() -> None:
    found = rates(steps=21, warmup=1, schedule="cosine", final=0.1)
    assert found[0] == 1.0
    assert found[10] == pytest.approx(0.1 + 0.9 / 2)  # half way
    assert found[-1] == pytest.approx(0.1, rel=1e-12)
    assert found == sorted(found, reverse=True)


def test_linear_falls_evenly_to_where_it_says() -> None:
    assert rates(steps=6, warmup=2, schedule="linear", final=0.0) == pytest.approx([0.5, 1.0, 0.75, 0.5, 0.25, 0.0])
    assert rates(steps=5, warmup=1, schedule="linear", final=0.2) == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_cosine_stays_positive_when_warmup_is_all_there_is() -> None:
    assert rates(steps=3, warmup=10, schedule="cosine") == pytest.approx([0.1, 0.2, 0.3])


def test_plateau_falls_exactly_when_it_should() -> None:
    settings = spec(lr=1.0, schedule="plateau", wait=2, decay=0.5)
    plateau, found = Plateau(), []
    for nats in (3.0, 2.0, 2.0, 2.1, 1.9, 1.9, 1.9, 1.9, 1.9, 1.0):
        plateau = plateau.after(nats, settings)
        found.append((learning_rate(9, settings, plateau), plateau.stale))
    assert found == [
        *((1.0, 0), (1.0, 0), (1.0, 1), (0.5, 2)),  # two without improvement
        *((0.5, 0), (0.5, 1), (0.25, 2), (0.25, 3), (0.125, 4)),  # the wait begins anew after a fall
        (0.125, 0),
    ]


def test_other_schedules_do_not_fall() -> None:
    plateau = Plateau()
    for _ in range(9):
        plateau = plateau.after(1.0, spec(schedule="constant"))
    assert plateau.factor == 1.0
    assert plateau.stale == 8


def test_patience_ends_the_run() -> None:
    task = TokenTask(nats=[3.0, 2.0, 2.0, 2.5, 9.9])
    outcome = fit(tiny(), task, spec(steps=50, evaluate_every=2, patience=2))
    assert (outcome.step, outcome.best_step, outcome.evaluation) == (8, 4, {"nats": 2.0})


def test_asgd_averages_what_it_saw_after_the_trigger(tmp_path: Path) -> None:
    """Evaluated at 2, 4, 6, 8; no improvement at 4 and 6 starts the average with the weights of step 6."""
    model, task = tiny(), TokenTask(nats=[2.0, 2.1, 2.2, 1.0])
    settings = spec(optimizer="asgd", lr=0.5, schedule="constant", trigger=2, steps=8, evaluate_every=2)
    seen: dict[int, dict[str, torch.Tensor]] = {}

    def remember(step: int) -> None:
        seen[step] = {name: p.detach().clone() for name, p in model.named_parameters()}

    fit(model, task, settings, folder=RunFolder(tmp_path, identity={}), on_step=remember)
    mean = {name: (seen[6][name] + seen[7][name] + seen[8][name]) / 3 for name in seen[6]}
    assert distance(task.seen[2], seen[6]) == 0  # evaluated before the average began
    assert distance(task.seen[3], mean) < 1e-15  # evaluated with it
    assert distance(dict(model.named_parameters()), seen[8]) == 0  # training went on with its own weights
    published = read_tensors(tmp_path / "model.safetensors")
    assert distance(published, mean) < 1e-15
    checkpoint, _ = newest_verified(tmp_path)
    assert checkpoint is not None
    assert distance(checkpoint.average(), mean) < 1e-15
    assert distance(read_tensors(checkpoint.path / "model.safetensors"), seen[8]) == 0


def test_asgd_survives_a_resume(tmp_path: Path) -> None:
    nats = [2.0, 2.1, 2.2, 2.3, 1.0, 0.9]
    settings = spec(optimizer="asgd", lr=0.5, schedule="constant", trigger=2, steps=12, evaluate_every=2, save_every=1)
    uncut = fit(tiny(), TokenTask(nats=nats), settings)

    class Cut(BaseException):
        pass

    def cut(step: int) -> None:
        if step == 8:
            raise Cut

    folder = RunFolder(tmp_path, identity={})
    task = TokenTask(nats=nats)
    with pytest.raises(Cut):
        fit(tiny(), task, settings, folder=folder, on_step=cut)
    checkpoint, _ = newest_verified(tmp_path)
    assert checkpoint is not None
    assert checkpoint.progress["averaged"] == 2  # steps 6 and 7
    resumed = fit(tiny(), task, settings, folder=folder, resume=checkpoint)
    assert resumed.weights_sha256 == uncut.weights_sha256
    assert resumed.best_step == uncut.best_step == 12


def test_a_run_that_gave_up_goes_on_with_more_patience(tmp_path: Path) -> None:
    task = TokenTask(nats=[1.0, 2.0, 2.0, 0.5])
    folder = RunFolder(tmp_path, identity={})
    fit(tiny(), task, spec(steps=8, evaluate_every=2, patience=2), folder=folder)
    checkpoint, _ = newest_verified(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 6
    outcome = fit(tiny(), task, spec(steps=8, evaluate_every=2, patience=3), folder=folder, resume=checkpoint)
    assert (outcome.step, outcome.best_step) == (8, 8)
    assert math.isclose(outcome.evaluation["nats"], 0.5)

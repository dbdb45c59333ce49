"""Steps whose updates the device decides on: they are the steps of the host, and what is not finite stops them.

Guards are for GPUs; here they are forced upon a CPU, which computes the same way.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_task import TokenTask, spec, tiny
from torch import Tensor, nn

from statewise.training import NonFinite, Parallel, RunFolder, Window, fit
from statewise.training import loop as loop_module
from statewise.training.folder import newest_verified, weights_sha256
from statewise.training.journal import read_metrics
from statewise.training.optimizer import optimizer_tensors
from statewise.training.step_report import Guard, Readings
from statewise.training.update import Updater

RATE = 2.0**-7  # the same number in every precision
OPTIMIZERS = {
    "adamw": {"weight_decay": 0.1},
    "averaged": {"average": 0.9},
    "sgd": {"optimizer": "sgd"},
    "momentum": {"optimizer": "sgd", "momentum": 0.9, "clip": 0.05},
    "muon": {"optimizer": "muon", "matrix_decay": 0.1},
}


def updater(task: TokenTask, *, guarded: bool = True, **settings: Any) -> Updater:
    return Updater(tiny(depth=2), task, spec(**settings), seed=0, par=Parallel(), guarded=guarded)


def memory(made: Updater) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in optimizer_tensors(made.optimizer).items()}


def average(made: Updater) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in made.average.tensors().items()}


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


@pytest.mark.parametrize("settings", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_guarded_step_is_the_step(settings: dict[str, Any]) -> None:
    plain, guarded = (updater(TokenTask(), guarded=guarded, **settings) for guarded in (False, True))
    for number in range(1, 6):
        expected, found = (made.take(number, rate=RATE) for made in (plain, guarded))
        loss, norm, *norms = found.numbers.tolist()
        assert loss * found.scale == pytest.approx(float(expected.numbers[0]) * expected.scale, rel=1e-12)
        assert norm == pytest.approx(float(expected.numbers[1]), rel=1e-12)
        assert len(norms) == len(list(plain.model.parameters()))
    for (name, a), b in zip(plain.model.named_parameters(), guarded.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12, msg=name)
    for held in (memory, average):
        for name, value in held(plain).items():
            torch.testing.assert_close(held(guarded)[name], value, rtol=0, atol=1e-12, msg=name)


def poison(made: Updater, what: str, *, at: int) -> None:
    """What step `at` gives is not a number."""
    if what == "gradient":
        count = iter(range(1, 100))
        made.model.head.bias_V.register_hook(lambda g: g * torch.inf if next(count) == at else g)
        return
    task: Any = made.task
    honest, step_of, window_of = task.loss, {}, task.window

    def window(step: int) -> Any:
        found = window_of(step)
        step_of[id(found)] = step
        return found

    def loss(model: Any, window: Any, *rest: Any) -> tuple[Tensor, Any]:
        value, state = honest(model, window, *rest)
        return (value * torch.nan if step_of[id(window)] == at - 1 else value), state

    task.window, task.loss = window, loss


@pytest.mark.parametrize("settings", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_nothing_is_updated_from_the_first_number_on_that_is_none(what: str, settings: dict[str, Any]) -> None:
    made = updater(TokenTask(), **settings)
    poison(made, what, at=3)
    for number in (1, 2):
        made.take(number, rate=RATE)
    weights, held = weights_sha256(made.model), memory(made)
    for number in (3, 4, 5):
        taken = made.take(number, rate=RATE)
        finite = bool(taken.numbers.isfinite().all())
        assert finite == (number > 3), "only the third is bad; the others are held back because it was"
    assert weights_sha256(made.model) == weights
    assert_same(memory(made), held)


def test_a_first_step_that_is_bad_leaves_nothing_either() -> None:
    for settings in OPTIMIZERS.values():
        made = updater(TokenTask(), **settings)
        poison(made, "gradient", at=1)
        before = weights_sha256(made.model)
        for number in (1, 2):
            made.take(number, rate=RATE)
        assert weights_sha256(made.model) == before
        assert not any(value.any() for value in memory(made).values())


@pytest.mark.parametrize("settings", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_rehearsal_changes_nothing(settings: dict[str, Any]) -> None:
    rehearsed, plain = updater(TokenTask(), **settings), updater(TokenTask(), **settings)
    for number in range(1, 5):
        rehearsed.rehearse(number)
        rehearsed.rehearse(number + 1)
        a, b = (made.take(number, rate=RATE).numbers.clone() for made in (rehearsed, plain))
        assert torch.equal(a, b)
    assert weights_sha256(rehearsed.model) == weights_sha256(plain.model)
    assert_same(memory(rehearsed), memory(plain))
    assert_same(average(rehearsed), average(plain))


class Late(Readings):
    """As a GPU is: what was asked for comes three steps later, or when somebody waits."""

    def due(self, *, all_of_them: bool = False) -> Iterator[list[float]]:
        while len(self._on_host) > (0 if all_of_them else 3):
            yield self._on_host.popleft().tolist()


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "Readings", Late)
    monkeypatch.setattr(loop_module, "Updater", functools.partial(Updater, guarded=True))


SETTINGS = {"steps": 23, "log_every": 2, "evaluate_every": 7, "save_every": 5, "average": 0.8, "clip": 0.3}


NATS = [2.0, 1.5, 1.7, 1.2, 1.1]


def run(folder: Path, **more: Any) -> tuple[list[dict[str, Any]], str]:
    task = TokenTask(nats=NATS)
    outcome = fit(tiny(dropout=0.3), task, spec(**SETTINGS), folder=RunFolder(folder, identity={}), **more)
    return read_metrics(folder), outcome.weights_sha256


def test_what_is_read_late_is_written_down_as_if_it_were_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: None
) -> None:
    found = run(tmp_path / "late")
    monkeypatch.setattr(loop_module, "Readings", Readings)
    assert run(tmp_path / "at once") == found
    assert [line["step"] for line in found[0] if "loss" in line] == [*range(2, 23, 2), 23]


@pytest.mark.parametrize("cut", [1, 4, 6, 12, 20])
def test_a_cut_run_repeats_the_uncut_one(tmp_path: Path, late: None, cut: int) -> None:
    class Cut(BaseException):
        pass

    def at(step: int) -> None:
        if step == cut:
            raise Cut

    uncut = run(tmp_path / "uncut")
    with pytest.raises(Cut):
        run(tmp_path / "cut", on_step=at)
    checkpoint, _ = newest_verified(tmp_path / "cut")
    if checkpoint is None:
        assert cut < 5, "before the first checkpoint there is nothing to go on from"
        return
    task = TokenTask(nats=NATS[checkpoint.step // 7 :])
    folder = RunFolder(tmp_path / "cut", identity={})
    outcome = fit(tiny(dropout=0.3), task, spec(**SETTINGS), folder=folder, resume=checkpoint)
    assert (read_metrics(folder.path), outcome.weights_sha256) == uncut


class Failing(TokenTask):
    """Raises once: in the loss of step `step`, or in the evaluation after it."""

    def __init__(self, where: str, step: int) -> None:
        super().__init__(nats=NATS)
        self.where, self.at, self.number = where, step, 0

    def window(self, step: int) -> Window:
        self.number = step + 1
        return super().window(step)

    def loss(self, *arguments: Any) -> Any:
        loss, state = super().loss(*arguments)
        if (self.where, self.at) == ("loss", self.number):
            raise ZeroDivisionError
        return loss, state

    def evaluate(self, *arguments: Any) -> dict[str, float]:
        if (self.where, self.at) == ("evaluation", self.number):
            raise ZeroDivisionError
        return super().evaluate(*arguments)


@pytest.mark.parametrize(("where", "step", "saved"), [("loss", 2, 1), ("loss", 17, 16), ("evaluation", 7, 7)])
def test_a_run_that_failed_goes_on_as_if_it_had_not(
    tmp_path: Path, late: None, where: str, step: int, saved: int
) -> None:
    uncut = run(tmp_path / "uncut")
    folder, task = RunFolder(tmp_path / "failed", identity={}), Failing(where, step)
    with pytest.raises(ZeroDivisionError):
        fit(tiny(dropout=0.3), task, spec(**SETTINGS), folder=folder)
    checkpoint, _ = newest_verified(folder.path)
    assert checkpoint is not None
    assert checkpoint.step == saved
    rest = TokenTask(nats=NATS[len(task.seen) :])
    outcome = fit(tiny(dropout=0.3), rest, spec(**SETTINGS), folder=folder, resume=checkpoint)
    assert (read_metrics(folder.path), outcome.weights_sha256) == uncut


@pytest.mark.parametrize(("what", "named"), [("loss", "the loss"), ("gradient", "the gradient of head.bias_V")])
def test_the_host_names_the_step_and_the_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: None, what: str, named: str
) -> None:
    made: list[Updater] = []

    def poisoned(*args: Any, **options: Any) -> Updater:
        made.append(Updater(*args, **options, guarded=True))
        poison(made[0], what, at=6)
        return made[0]

    monkeypatch.setattr(loop_module, "Updater", poisoned)
    made_of: dict[int, str] = {}
    model: nn.Module = tiny()
    with pytest.raises(NonFinite) as caught:
        fit(
            model,
            TokenTask(nats=[1.0] * 9),
            spec(steps=20),
            folder=RunFolder(tmp_path, identity={}),
            on_step=lambda step: made_of.update({step: weights_sha256(model)}),
        )
    assert str(caught.value) == f"{named} is not finite at step 6; the weights were not updated"
    assert max(made_of) == 8, "it was noticed later"
    assert weights_sha256(model) == made_of[5]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000000"]


def test_a_weight_that_is_none_is_named_before_what_follows_from_it(late: None) -> None:
    model = tiny()
    with torch.no_grad():
        model.stack.blocks[0].mixer.u_GP[0, 0] = torch.nan
    with pytest.raises(NonFinite, match=r"weight stack\.blocks\.0\.mixer\.u_GP is not finite at step 1"):
        fit(model, TokenTask(nats=[1.0]), spec())


def test_a_gradient_that_is_finite_but_too_large_for_its_norm_is_named() -> None:
    model = tiny().float()
    guard = Guard(model)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    model.head.bias_V.grad = torch.full_like(model.head.bias_V, 1e30)
    guard.watch(torch.tensor(1.0))
    assert float(guard.stopped) == 1.0
    report = guard.report.tolist()
    assert guard.culprit(report) == "the gradient of head.bias_V"

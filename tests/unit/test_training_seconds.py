"""A run that ends by the clock. Time is made here, so that every step costs what the test says."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tiny_task import TokenTask, spec, tiny

from statewise.training import Outcome, RunFolder, Window, fit
from statewise.training import loop as loop_module
from statewise.training.folder import newest_verified
from statewise.training.journal import read_metrics
from statewise.training.progress_state import Extent, Progress


class Cut(BaseException):
    pass


class TimedTask(TokenTask):
    """A step takes `each` seconds, an evaluation many; the first window, which compiles, more than all others."""

    def __init__(self, *, each: float, compiling: float = 100.0) -> None:
        super().__init__(nats=[1 / (1 + n) for n in range(50)])
        self.each, self.compiling, self.now, self.asked = each, compiling, 0.0, 0

    def window(self, step: int) -> Window:
        self.now += self.compiling if self.asked == 0 else self.each
        self.asked += 1
        return super().window(step)

    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        self.now += 1000.0
        return super().evaluate(model, poll)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    def runs(task: TimedTask, settings: dict[str, Any], **more: Any) -> Outcome:
        class Clock:
            monotonic = staticmethod(lambda: task.now)

        monkeypatch.setattr(loop_module, "time", Clock)
        return fit(tiny(), task, spec(**settings), **more)

    return runs


@pytest.mark.parametrize(("each", "steps"), [(0.3, 33), (0.4, 25), (0.7, 14), (3.9, 3), (60.0, 1)])
def test_it_ends_at_the_step_that_is_nearest(run: Callable[..., Outcome], each: float, steps: int) -> None:
    outcome = run(TimedTask(each=each), {"seconds": 10.0, "steps": 100})
    assert outcome.step == steps
    assert outcome.seconds == pytest.approx(steps * each)
    assert steps == 1 or abs(outcome.seconds - 10) <= each / 2 + 1e-9


def test_slow_and_fast_are_evaluated_as_often_and_end_at_the_same_rate(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    settings = {
        "seconds": 20.0,
        "steps": 100,
        "evaluate_every": 25,
        "warmup": 10,
        "lr": 1.0,
        "final": 0.1,
        "log_every": 1,
    }
    for each in (0.05, 0.5):
        folder = RunFolder(tmp_path / str(each), identity={})
        run(TimedTask(each=each), settings, folder=folder)
        lines = read_metrics(folder.path)
        evaluated = [line["step"] * each for line in lines if "validation_nats" in line]
        assert evaluated == pytest.approx([5.0, 10.0, 15.0, 20.0], abs=1.5 * each)
        rate = {line["step"] * each: line["lr"] for line in lines if "lr" in line}
        assert max(rate.values()) == pytest.approx(1.0, abs=0.03)
        assert min(rate, key=lambda at: abs(rate[at] - 0.55)) == pytest.approx(
            2 + 18 / 2, abs=3 * each
        )  # half way down
        assert list(rate.values())[-1] == pytest.approx(0.1, abs=0.01)
        assert next(iter(rate.values())) == pytest.approx(0.1)  # the first mark of ten


def test_with_a_constant_rate_it_is_the_run_of_so_many_steps(run: Callable[..., Outcome]) -> None:
    """The rehearsal changes no weight, and nothing else depends on the clock."""
    constant = {"schedule": "constant", "warmup": 0, "evaluate_every": 100}
    timed = run(TimedTask(each=0.5), {**constant, "seconds": 6.0, "steps": 100})
    counted = run(TimedTask(each=0.5), {**constant, "steps": 12})
    assert timed.step == 12
    assert timed.weights_sha256 == counted.weights_sha256


def test_what_compiles_is_told_and_does_not_count(run: Callable[..., Outcome], tmp_path: Path) -> None:
    run(TimedTask(each=1.0, compiling=500.0), {"seconds": 4.0}, folder=RunFolder(tmp_path, identity={}))
    first = (tmp_path / "timing.jsonl").read_text().splitlines()[0]
    assert first == '{"step": 0, "rehearsal_seconds": 500.0}'


def test_a_cut_run_goes_on_with_the_seconds_that_are_left(run: Callable[..., Outcome], tmp_path: Path) -> None:
    settings = {"seconds": 10.0, "steps": 100, "save_every": 20}

    def cut(step: int) -> None:
        if step == 11:  # 5.5 seconds; the last checkpoint is of 4
            raise Cut

    folder = RunFolder(tmp_path, identity={})
    with pytest.raises(Cut):
        run(TimedTask(each=0.5), settings, folder=folder, on_step=cut)
    checkpoint, _ = newest_verified(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.progress["seconds"]) == (8, 4.0)
    outcome = run(TimedTask(each=0.25), settings, folder=folder, resume=checkpoint)
    assert (outcome.step, outcome.seconds) == (8 + 24, 10.0)  # the rest at twice the speed
    checkpoint, _ = newest_verified(tmp_path)
    assert checkpoint is not None
    again = run(TimedTask(each=0.25), settings, folder=folder, resume=checkpoint)
    assert again == outcome._replace(tokens_per_second=0.0)
    longer = run(TimedTask(each=0.25), {**settings, "seconds": 11.0}, folder=folder, resume=checkpoint)
    assert longer.seconds == 11.0


def test_what_contradicts_seconds_is_refused() -> None:
    with pytest.raises(ValidationError, match="where a run ends depends on the machine"):
        spec(seconds=1.0, deterministic=True)
    with pytest.raises(ValidationError, match="needs steps above 0"):
        spec(seconds=1.0, steps=0)
    for value in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValidationError):
            spec(seconds=value)


def test_how_far_it_is_in_words() -> None:
    assert str(Extent(3, 10, 1.5, None)) == "step 3/10"
    assert str(Extent(30, 10, 1.6, 20.0)) == "2/20 s, step 30"
    assert Extent(30, 10, 21.0, 20.0).done == 20.0
    assert Progress(step=4, seconds=2.0).extent(spec(seconds=3.0, steps=9)) == Extent(4, 9, 2.0, 3.0)


def test_a_record_from_before_seconds_were_counted_is_read() -> None:
    record = asdict(Progress(step=3, tokens=12, seconds=1.5))
    record["plateau"] = list(record["plateau"])
    assert Progress.from_record(record).seconds == 1.5
    del record["seconds"]
    assert Progress.from_record(record) == Progress(step=3, tokens=12)

"""What is said of the time that is left."""

from types import SimpleNamespace
from typing import Any

import pytest

from statewise.comparison import progress
from statewise.comparison.progress import Tally


def tally(monkeypatch: pytest.MonkeyPatch, *, trials: int, found: int = 0) -> tuple[Any, list[float]]:
    """A phase of so many trials, some of them found before, and a clock that is set by hand."""
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    made = [SimpleNamespace(key=str(n), phase="final", entry="lstm", seed=n, cost=1.0) for n in range(trials)]
    return Tally([(SimpleNamespace(), made)], made[:found], []), clock


def test_what_is_half_done_counts_as_half(monkeypatch: pytest.MonkeyPatch) -> None:
    phase, clock = tally(monkeypatch, trials=4)
    trial = phase.trials[0]
    assert phase.left() == ""
    phase.running["0"] = trial, {}
    clock[0] += 30
    assert phase.left() == "", "one that has only started says nothing"
    phase.running["0"] = trial, {"share": 0.5}
    assert phase.left() == "about 3:30 left"
    phase.running["0"] = trial, {"doing": "measuring"}
    assert phase.left() == "about 1:30 left", "after training little is left of it"
    del phase.running["0"]
    phase.found["0"] = trial
    assert phase.left() == "about 1:30 left"


def test_what_was_done_before_took_no_time_now(monkeypatch: pytest.MonkeyPatch) -> None:
    phase, clock = tally(monkeypatch, trials=4, found=2)
    phase.running["2"] = phase.trials[2], {"share": 0.25}
    clock[0] += 15
    assert phase.left() == "about 1:45 left"


def test_a_long_trial_counts_for_more_than_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    phase, clock = tally(monkeypatch, trials=4)
    phase.trials[0].cost = 7.0
    phase.found["0"] = phase.trials[0]
    clock[0] += 70
    assert phase.left() == "about 0:30 left", "seven tenths of the work are done"

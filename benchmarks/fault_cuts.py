"""Runs that are killed at a random step and resumed. A part of `faults.py`."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fault_trial import Child, Row, again, fresh, say

from statewise.models import LINEAGE
from statewise.tasks import LanguageModelJob

STEPS = 30  # of a run that is cut
EXTRAS: dict[str, dict[str, Any]] = {
    "elman": {"data.order": "random", "train.accumulate": 3},
    "gru": {"train.optimizer": "asgd", "train.trigger": 1, "train.lr": 10.0, "train.schedule": "plateau"},
    "lstm": {"model.dropout": 0.3, "model.weight_drop": 0.3, "model.variational": True, "train.truncation": "random:4"},
}


def cuts(text: Path, home: Path, *, each: int) -> Iterator[Row]:
    """Killed at random steps and resumed: metrics, weights and published model equal the uncut run's."""
    began, passed = time.monotonic(), 0
    kinds = [row.spec.kind for row in LINEAGE if "width" in type(row.spec).model_fields]  # those that learn by steps
    for kind in kinds:
        good = sum(cut_once(kind, cut, text, home) for cut in random.Random(kind).sample(range(5, STEPS), each))
        say(f"cuts of {kind}: {good} of {each}")
        passed += good
    seen = f"{', '.join(kinds)}: metrics and weights byte for byte the uncut run's"
    yield Row("cut at a random step and resumed", each * len(kinds), passed, seen, time.monotonic() - began)


def cut_once(kind: str, cut: int, text: Path, home: Path) -> bool:
    settings: dict[str, Any] = {"train__steps": STEPS, "train__save_every": 4, "train__log_every": 3}
    settings |= {name.replace(".", "__"): value for name, value in EXTRAS.get(kind, {}).items()}
    whole, out = home / f"cut-{kind}", home / f"cut-{kind}-{cut}"
    if not whole.exists():
        Child(fresh(kind, text, whole, **settings), home / "log").wait()

    def end_at_cut() -> None:
        honest = LanguageModelJob.window

        def window(self: LanguageModelJob, step: int) -> Any:
            if step == cut:
                os.kill(os.getpid(), signal.SIGKILL)
            return honest(self, step)

        LanguageModelJob.window = window

    code = Child(fresh(kind, text, out, **settings), home / "log", prepare=end_at_cut).wait()
    child = Child(again(out), home / "log")
    resumed = child.wait()
    names = ("metrics.jsonl", "model.safetensors", f"checkpoints/step-{STEPS:08d}/model.safetensors")
    same = all((out / name).is_file() and (out / name).read_bytes() == (whole / name).read_bytes() for name in names)
    good = code == -signal.SIGKILL and resumed == 0 and same
    if not good:
        say(f"cut of {kind} at {cut}: code {code}, resumed {resumed}, same {same}: {child.said()}")
    return good

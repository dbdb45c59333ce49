"""Runs small enough to be repeated dozens of times, and the ways to end one early."""

import contextlib
import hashlib
import io
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import statewise
from statewise import cli
from statewise.tasks import Trained, train
from statewise.training.progress import Silent

ROOT = Path(statewise.__file__).parents[1]
TEXT = "the cat sat on the mat and the dog sat on the log, so the cat and the dog sat. " * 40
BASE: dict[str, Any] = {
    "model.width": 8,
    "train.steps": 24,
    "train.batch": 4,
    "train.window": 8,
    "train.truncation": 8,
    "train.warmup": 3,
    "train.log_every": 5,
    "train.evaluate_every": 6,
    "train.evaluate_tokens": 100,
    "train.save_every": 4,
}
# One of each kind of memory that a resume must bring back.
FAMILIES: dict[str, dict[str, Any]] = {
    "elman": {"data.order": "random", "train.accumulate": 3, "train.clip": 0.1, "train.log_every": 3},
    "gru": {
        "train.optimizer": "asgd",
        "train.trigger": 1,
        "train.lr": 10.0,
        "train.schedule": "plateau",
        "train.evaluate_every": 3,
    },
    "lstm": {
        "model.depth": 2,
        "model.dropout": 0.3,
        "model.weight_drop": 0.3,
        "model.variational": True,
        "model.zoneout": 0.1,
        "train.truncation": "unbiased:3",
        "data.separator": "log",
    },
    "transformer": {"model.heads": 2, "train.optimizer": "muon", "train.matrix_decay": 0.1, "train.schedule": "linear"},
}


class Cut(BaseException):
    """Ends a run as a kill would: nothing is saved any more."""


class Heard(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def write_text(folder: Path) -> Path:
    path = folder / "text.txt"
    path.write_text(TEXT)
    return path


def start(kind: str, text: Path, out: Path, settings: Mapping[str, Any] | None = None, **more: Any) -> Trained:
    merged = {**BASE, **(settings or {})}
    return train(kind, settings=merged, data=text, out=out, **{"display": Silent(), **more})


def resume(out: Path, settings: Mapping[str, Any] | None = None, **more: Any) -> Trained:
    return train(out=out, settings=settings or {}, resume=True, **{"display": Silent(), **more})


def at(step: int, action: Callable[[], None]) -> Callable[[int], None]:
    return lambda number: action() if number == step else None


def crash() -> None:
    raise Cut


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def evidence(trained: Trained) -> dict[str, Any]:
    """All that must not depend on whether a run was cut."""
    return {
        "metrics": (trained.path / "metrics.jsonl").read_text(),
        "weights": trained.outcome.weights_sha256,
        "published": sha256(trained.path / "model.safetensors"),
        "best": (trained.outcome.best_step, trained.outcome.evaluation),
        "step": trained.outcome.step,
    }


class Said(NamedTuple):
    code: int
    out: str
    err: str


def call(*argv: str) -> Said:
    """`statewise ...` in this process."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["statewise", *argv]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli._run()
    finally:
        sys.argv = before
    return Said(code, out.getvalue(), err.getvalue())


def options(settings: Mapping[str, Any] | None = None) -> list[str]:
    merged = {**BASE, **(settings or {})}
    return [word for path, value in merged.items() for word in ("--set", f"{path}={str(value).lower()}")]


def environment(**extra: str) -> dict[str, str]:
    """For a process of its own that finds this package and keeps to one thread."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **extra}

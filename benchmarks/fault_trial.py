"""Parts of a trial of `faults.py`: a tiny run, a command in a fork of this process, a row of the table."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from statewise import cli
from statewise.training.journal import summary_writer

summary_writer()  # imported before the forks
TEXT = "the cat sat on the mat and the dog sat on the log, so the cat and the dog sat. " * 40
TINY = {
    "model.width": 8,
    "train.batch": 4,
    "train.window": 8,
    "train.truncation": 8,
    "train.schedule": "constant",
    "train.log_every": 1,
    "train.evaluate_every": 5,
    "train.evaluate_tokens": 100,
    "train.save_every": 1,
}


class Row(NamedTuple):
    fault: str
    trials: int
    passed: int
    seen: str
    seconds: float


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Child:
    """`statewise ...` in a fork of this process, so that it starts at once."""

    def __init__(self, argv: list[str], log: Path, *, prepare: Callable[[], None] | None = None) -> None:
        self.log = log
        self.parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            try:
                handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(handle, 1)
                os.dup2(handle, 2)
                sys.argv = ["statewise", *argv]
                threading.Thread(target=self._end_with_parent, daemon=True).start()
                if prepare is not None:
                    prepare()
                code = cli._run()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    def _end_with_parent(self) -> None:
        while os.getppid() == self.parent:
            time.sleep(0.5)
        os._exit(71)

    def wait(self) -> int:
        """The exit code, or minus the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def gone(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def said(self) -> str:
        return self.log.read_text(errors="replace")


def words(settings: dict[str, Any]) -> list[str]:
    return [word for path, value in settings.items() for word in ("--set", f"{path}={json.dumps(value)}")]


def fresh(kind: str, text: Path, out: Path, **settings: Any) -> list[str]:
    merged = {**TINY, **{name.replace("__", "."): value for name, value in settings.items()}}
    return ["train", kind, "--data", str(text), "--out", str(out), "--quiet", *words(merged)]


def again(out: Path, **settings: Any) -> list[str]:
    return ["train", "--resume", "--out", str(out), "--quiet", *words({f"train.{k}": v for k, v in settings.items()})]


def losses(out: Path) -> list[str]:
    return [line for line in (out / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]


def litter(out: Path) -> list[str]:
    # `os.walk`: a folder may vanish while it is looked at.
    found = [os.path.join(folder, name) for folder, *names in os.walk(out) for some in names for name in some]
    return [path for path in found if os.path.basename(path).startswith(".tmp-") or path.endswith("~")]

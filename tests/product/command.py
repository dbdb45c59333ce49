"""The command line, called in this process or in one of its own."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from statewise import cli

TEXT = "the cat sat on the mat and the dog sat on the log, so the cat and the dog sat. " * 60
TINY = (
    *("--set", "train.steps=20", "--set", "model.width=16", "--set", "train.batch=4"),
    *("--set", "train.evaluate_every=10", "--set", "train.save_every=10", "--set", "train.window=16"),
    *("--set", "train.truncation=16"),
)


class Said(NamedTuple):
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


def call(*argv: str) -> Said:
    """`statewise ...` in this process: the same entry, without the seconds an interpreter takes to start."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["statewise", *argv]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli._run()
    finally:
        sys.argv = before
    return Said(code, out.getvalue(), err.getvalue())


def environment(**extra: str) -> dict[str, str]:
    """That of a child which finds this statewise, whether or not it is installed."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("COV_")}
    path = os.pathsep.join([str(Path(cli.__file__).parents[2]), inherited.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    # One thread: the models are tiny, and several tests may run side by side.
    return {**inherited, "PYTHONPATH": path, "COLUMNS": "100", "OMP_NUM_THREADS": "1", **extra}


def run(*argv: str, stdin: str | None = None, cwd: Path | None = None, timeout: float = 120.0, **extra: str) -> Said:
    """`statewise ...` in a process of its own, its streams not a terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "statewise", *argv],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        cwd=cwd,
        env=environment(**extra),
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)

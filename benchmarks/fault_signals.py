"""Signals in every phase of a run. A part of `faults.py`."""

import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fault_trial import Child, Row, again, fresh, litter, say

from statewise.tasks import LanguageModelJob
from statewise.training import checkpoint as checkpoint_module
from statewise.training.checkpoint import sha256
from statewise.training.folder import newest_verified


def announce(pipe: int, owner: Any, name: str, *, when: Callable[[], bool] = lambda: True) -> Callable[[], None]:
    """In the child: say that the phase has begun, and stay in it for a moment."""

    def prepare() -> None:
        honest, told = getattr(owner, name), []

        def slow(*arguments: Any, **options: Any) -> Any:
            if not told and when():
                told.append(True)
                os.write(pipe, b"!")
                time.sleep(0.03)
            return honest(*arguments, **options)

        setattr(owner, name, slow)

    return prepare


def signals(count: int, text: Path, home: Path) -> Iterator[Row]:
    """A real signal in each phase: exit code, a checkpoint of that very step, and a resume that changes nothing."""
    dice = random.Random(2)
    whole = home / "signals-whole"
    Child(fresh("lstm", text, whole, train__steps=12), home / "log").wait()
    expected = sha256(whole / "model.safetensors"), (whole / "metrics.jsonl").read_bytes()
    for phase, owner, name in (
        ("warm-up", LanguageModelJob, "build"),
        ("a step", LanguageModelJob, "loss"),
        ("evaluation", LanguageModelJob, "evaluate"),
        ("a save", checkpoint_module, "sha256"),
    ):
        began, passed, slowest = time.monotonic(), 0, 0.0
        for number in range(count):
            wanted = (signal.SIGTERM, signal.SIGINT)[number % 2]
            out = home / f"signal-{phase.replace(' ', '-')}-{number}"
            inward, outward = os.pipe()
            child = Child(
                fresh("lstm", text, out, train__steps=12),
                home / "log",
                prepare=announce(outward, owner, name),
            )
            os.close(outward)
            os.read(inward, 1)
            os.close(inward)
            time.sleep(dice.uniform(0, 0.02))
            sent = time.monotonic()
            os.kill(child.pid, wanted)
            code = child.wait()
            slowest = max(slowest, time.monotonic() - sent)
            stop = re.search(r"after step (\d+)", child.said())
            checkpoint, skipped = newest_verified(out)
            stopped = stop is not None and checkpoint is not None and checkpoint.step == int(stop[1]) and not skipped
            code_after = Child(again(out), home / "log-after").wait()
            same = code_after == 0 and expected == (
                sha256(out / "model.safetensors"),
                (out / "metrics.jsonl").read_bytes(),
            )
            good = code == 128 + wanted and stopped and same and not litter(out)
            passed += good
            if not good:
                say(f"signal in {phase}: code {code}, stopped {stopped}, same {same}: {child.said()}")
            shutil.rmtree(out, ignore_errors=True)
        say(f"signals in {phase}: {passed} of {count}")
        seen = f"exit 143 or 130, saved at that step, resumed bit-exact; slowest {slowest:.2f} s"
        yield Row(f"SIGTERM, SIGINT in {phase}", count, passed, seen, time.monotonic() - began)

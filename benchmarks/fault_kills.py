"""kill -9 while a run is saving. A part of `faults.py`."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from fault_trial import Child, Row, again, fresh, litter, losses, say

from statewise.training.folder import newest_verified, step_folders


def kills(count: int, text: Path, home: Path) -> Iterator[Row]:
    """One run, killed again and again in the middle of saving; compared with a run that never was."""
    began, dice, out = time.monotonic(), random.Random(1), home / "killed"
    endless = {"train__steps": 10**6, "train__evaluate_every": 10**6}
    passed, lost, inside, before = 0, 0, 0, 0
    for number in range(count):
        child = Child(again(out) if number else fresh("gru", text, out, **endless), home / "log")
        newest = wait_for_save(out, child, after=before)
        # What the kill before left must be gone now that a save has completed.
        clean = newest is not None and not [name for name in litter(out) if not in_progress(name, child)]
        time.sleep(dice.uniform(0, 0.05))
        aim(out, child, dice)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        inside += bool(litter(out))
        checkpoint, skipped = newest_verified(out)
        logged = len(losses(out))
        found = checkpoint.step if checkpoint is not None else 0
        lost = max(lost, logged - found)
        good = clean and checkpoint is not None and not skipped and logged - found <= 1
        passed += good
        if not good:
            say(f"kill {number}: clean {clean}, at {found} of {logged}, skipped {skipped}: {child.said()}")
        before = found
        if number % 20 == 19:
            say(f"kills: {number + 1} of {count}, at step {found}")
    last = before + 3
    code = Child(again(out, steps=last), home / "log").wait()
    whole = Child(fresh("gru", text, home / "whole", train__steps=last, train__save_every=10**6), home / "log").wait()
    same = code == whole == 0 and losses(out) == losses(home / "whole") and not litter(out)
    seen = (
        f"{inside} inside a save; at most {lost} step lost; no litter after the next save; after all of them the run "
    )
    seen += "is bit-identical to an uncut one" if same else "is NOT the uncut one"
    yield Row("kill -9 while saving", count, passed if same else 0, seen, time.monotonic() - began)


def wait_for_save(out: Path, child: Child, *, after: int) -> int | None:
    """The first step saved by this child."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not child.gone():
        steps = [step for _, step in step_folders(out / "checkpoints")]
        if steps and steps[0] > after:
            return steps[0]
        time.sleep(0.001)
    return None


def in_progress(name: str, child: Child) -> bool:
    """Whether litter belongs to the save going on now: it has gone a moment later."""
    deadline = time.monotonic() + 5
    while Path(name).exists():
        if time.monotonic() > deadline or child.gone():
            return False
        time.sleep(0.001)
    return True


def aim(out: Path, child: Child, dice: random.Random) -> None:
    """Wait for the beginning of a save, then a random part of one."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and not child.gone():
        if any(name.startswith(".tmp-") for name in os.listdir(out / "checkpoints")):
            break
    time.sleep(dice.uniform(0, 0.006))

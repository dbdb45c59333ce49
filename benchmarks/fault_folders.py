"""Damaged run folders, by the kinds of `damage.py`. A part of `faults.py`."""

import faulthandler
import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from damage import damage
from fault_trial import TINY, Row, say

from statewise import load
from statewise.specs import UserError
from statewise.tasks import train
from statewise.training.folder import step_folders, weights_sha256
from statewise.training.progress import Silent


class Pattern(NamedTuple):
    """A whole run to be damaged, and the weights it may honestly give."""

    path: Path
    good: frozenset[str]


def make_pattern(text: Path, home: Path) -> Pattern:
    settings = {**TINY, "train.steps": 6, "train.keep": 3, "train.evaluate_every": 2}
    trained = train("lstm", settings=settings, data=text, out=home / "pattern", display=Silent())
    return pattern_of(trained.path)


def pattern_of(run: Path) -> Pattern:
    good = {weights_sha256(load(run).model)}
    for path, _ in step_folders(run / "checkpoints"):
        good.add(weights_sha256(load(path).model))
    for extra in (*run.glob("events.*"), run / "timing.jsonl"):
        extra.unlink()
    return Pattern(run, frozenset(good))


def try_damaged(pattern: Pattern, number: int, home: Path) -> tuple[str, str | None]:
    """Damage one copy and open it: how it ended (refused, fallen back, opened), and what was wrong with that."""
    dice, run, marker = random.Random(number), home / f"damaged-{number}", home / f"outside-{number}" / "marker"
    shutil.copytree(pattern.path, run)
    marker.parent.mkdir()
    try:
        done = "; ".join(damage(run, dice, marker) for _ in range(dice.choice([1, 1, 2, 3, 6])))
        problem = None
        try:
            opened = load(run, device="cpu")
            ending = "fallen back" if opened.skipped else "opened"
            if weights_sha256(opened.model) not in pattern.good:
                problem = "other weights"
        except UserError:
            ending = "refused"
        except BaseException as error:  # a panic of the libraries below is none of the others
            ending, problem = "crashed", repr(error)
        if number % 10 == 0 and problem is None:
            try:
                train(resume=True, out=run, display=Silent())
            except (UserError, OSError):  # the latter: a folder stands where a file is to be written
                pass
            except BaseException as error:
                problem = f"resume: {error!r}"
        if marker.exists():
            problem = "CODE WAS RUN"
        return ending, None if problem is None else f"{problem} after {done}"
    finally:
        shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(marker.parent, ignore_errors=True)


def damaged(count: int, pattern: Pattern, home: Path) -> Iterator[Row]:
    began = time.monotonic()
    endings: dict[str, int] = {}
    passed = 0
    for first in range(0, count, 250):
        numbers = range(first, min(first + 250, count))
        report = home / "report.json"
        report.unlink(missing_ok=True)
        child = os.fork()  # a process of its own: if a file can make it crash, that is counted, not suffered
        if child == 0:
            faulthandler.dump_traceback_later(100, exit=True)
            try:
                report.write_text(json.dumps([try_damaged(pattern, number, home) for number in numbers]))
            except BaseException as error:
                say(f"damaged: {error!r}")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        results = json.loads(report.read_text()) if report.exists() else []
        for ending, problem in results:
            endings[ending] = endings.get(ending, 0) + 1
            passed += problem is None
            if problem is not None:
                say(f"damaged: {problem}")
        say(f"damaged folders: {passed} of {numbers.stop}")
    seen = ", ".join(f"{endings[name]} {name}" for name in sorted(endings)) + "; no crash, no code run"
    yield Row("damaged run folders", count, passed, seen, time.monotonic() - began)

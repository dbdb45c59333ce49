"""Studies small enough to be run, killed and run again."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command import TEXT, environment

STUDY = """
title = "Two small ones"
question = "Which of two remembers better?"
seeds = {seeds}
minutes = 0.1

[base]
data.text = ["text.txt"]

[base.train]
device = "cpu"
steps = {steps}
batch = 4
window = 16
truncation = 16
warmup = 2
log_every = 2
evaluate_every = {every}
save_every = {every}
evaluate_tokens = 200

[budget]
kind = "parameters"
amount = 3000
tolerance = 0.2

[[entry]]
name = "lstm"
settings.model.kind = "lstm"

[[entry]]
name = "gru"
settings.model.kind = "gru"
{more}
"""
RECALL = """
title = "Recall"
question = "Who recalls?"
seeds = 2
metric = "accuracy"
better = "higher"
minutes = 0.1
budget = { kind = "none", context = 14 }
search = { trials = 2, space = { "train.lr" = [0.01, 0.001] } }
[base]
task = "classification"
data = { embedded = "recall", distance = 4 }
model.width = 8
[base.train]
device = "cpu"
steps = 3
batch = 4
evaluate_every = 3
[[entry]]
name = "elman"
settings.model.kind = "elman"
[[entry]]
name = "gru"
settings.model.kind = "gru"
"""
STORY = """
title = "A small story"
question = "Who recalls, and who predicts?"
[[part]]
study = "recall.toml"
[[part]]
study = "tiny.toml"
[look]
part = "recall"
rows = 8
"""
# Numbers that are times, or memory: they are not the same twice.
_MEASURED = {
    "seconds",
    "tokens_per_second",
    "decode_tokens_per_second",
    "peak_bytes",
    "seconds_by_context",
    "sha256",  # of all these too
}


def write_study(folder: Path, *, steps: int = 6, every: int = 3, seeds: int = 2, more: str = "") -> Path:
    (folder / "text.txt").write_text(TEXT)
    path = folder / "tiny.toml"
    path.write_text(STUDY.format(steps=steps, every=every, seeds=seeds, more=more))
    return path


def results(study: Path) -> dict[str, dict[str, Any]]:
    """What was found, by key, without what a clock or the machine decides."""
    found = {}
    for path in sorted(study.glob("trials/*/result.json")):
        record = json.loads(path.read_text())
        curve = [{name: point[name] for name in ("step", "tokens", "flops", "figure")} for point in record["curve"]]
        found[path.parent.name] = {k: v for k, v in record.items() if k not in _MEASURED} | {"curve": curve}
    return found


def events(study: Path) -> Counter[tuple[str, str]]:
    """How often each thing happened to each trial, as the log says."""
    path = study / "log.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return Counter((line["event"], line["key"]) for line in lines)


def saved(study: Path) -> list[Path]:
    """The trials that have a checkpoint of a later step than 0. One that is being written has another name."""
    found = study.glob("trials/*/run/checkpoints/step-*")
    return sorted({path.parents[2] for path in found if not path.name.startswith("step-00000000")})


def sessions(study: Path) -> int:
    """How many times somebody began to work on a trial, whatever came of it."""
    return sum(path.read_text().count('"pid"') for path in study.glob("trials/*/sessions.jsonl"))


def driver(folder: Path, study: Path, out: Path, *more: str, workers: str = "1") -> "subprocess.Popen[str]":
    """`statewise compare` in a process of its own."""
    argv = [sys.executable, "-m", "statewise", "compare", str(study), "--out", str(out), "--workers", workers, *more]
    return subprocess.Popen(
        argv,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(happened: Callable[[], bool], process: "subprocess.Popen[str]", *, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.01)


def alive(pids: list[int]) -> list[int]:
    """Those that still run. (A zombie does not.)"""
    found = []
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if status != "Z" and os.getpid() != pid:
            found.append(pid)
    return found


def trial_pids(study: Path) -> list[int]:
    lines = [
        json.loads(line) for path in study.glob("trials/*/sessions.jsonl") for line in path.read_text().splitlines()
    ]
    return [line["pid"] for line in lines if "pid" in line]


def wait_until_gone(pids: list[int], *, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while left := alive(pids):
        assert time.monotonic() < until, f"{left} still run"
        time.sleep(0.05)

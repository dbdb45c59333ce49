"""`statewise compare` whose driver is killed (kill -9) at random times: are the results those of an undisturbed run?

    python benchmarks/compare_kills.py --kills 10

Prints a line for each kill and then the outcome; exits with 1 if a trial was lost, run twice or gave another result.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TEXT = "the cat sat on the mat and the dog sat on the log, so the cat and the dog sat. " * 60
STUDY = """
title = "Killed"
question = "Does it matter when?"
seeds = 3
[base]
data.text = ["text.txt"]
train = { device = "cpu", steps = STEPS, batch = 4, window = 16, truncation = 16, save_every = 50, evaluate_every = 50 }
[budget]
kind = "parameters"
amount = 3000
tolerance = 0.2
"""
KINDS = ("elman", "lstm", "gru", "mingru")
# What a clock or the machine decides.
MEASURED = (
    "seconds",
    "tokens_per_second",
    "decode_tokens_per_second",
    "peak_bytes",
    "seconds_by_context",
    "curve",
    "sha256",
)


def start(folder: Path, out: str) -> "subprocess.Popen[bytes]":
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    argv = [sys.executable, "-m", "statewise", "compare", "killed.toml", "--out", out, "--workers", "2", "--quiet"]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(argv, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def results(study: Path) -> dict[str, dict[str, Any]]:
    found = {path.parent.name: json.loads(path.read_text()) for path in study.glob("trials/*/result.json")}
    return {key: {k: v for k, v in one.items() if k not in MEASURED} for key, one in found.items()}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def trial_pids(study: Path) -> set[int]:
    return {line["pid"] for path in study.glob("trials/*/sessions.jsonl") for line in lines(path) if "pid" in line}


def running(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}/stat").exists() and not _zombie(pid)}


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    dice = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text.txt").write_text(TEXT)
        entries = "".join(f'[[entry]]\nname = "{kind}"\nsettings.model.kind = "{kind}"\n' for kind in KINDS)
        (folder / "killed.toml").write_text(STUDY.replace("STEPS", str(asked.steps)) + entries)

        began = time.monotonic()
        assert start(folder, "uncut").wait() == 0
        took = time.monotonic() - began
        expected = results(folder / "uncut")
        first = min(line["time"] for line in lines(folder / "uncut/log.jsonl"))
        last = max(line["time"] for line in lines(folder / "uncut/log.jsonl"))
        before = took - (last - first)  # until the first trial is given out, and for the report
        print(f"uncut: {len(expected)} trials in {took:.0f} s")

        killed, wrong, again = 0, [], 0
        rounds = 0
        while killed < asked.kills:  # a study that gets done is followed by another, until all kills have been
            rounds += 1
            study = folder / f"cut-{rounds}"
            written: dict[Path, int] = {}
            while killed < asked.kills:
                # From the first imports to well inside the work, little enough of it that some is left for the next.
                wait = dice.uniform(0.2 * before, before + 3 * (last - first) / asked.kills)
                process = start(folder, study.name)
                time.sleep(wait)
                if process.poll() is not None:
                    break
                process.kill()
                process.wait()
                killed += 1
                time.sleep(1.0)
                orphans = running(trial_pids(study))
                if orphans:
                    wrong.append(f"kill {killed}: {len(orphans)} trials trained on")
                for path, at in written.items():
                    if not path.exists() or path.stat().st_mtime_ns != at:
                        wrong.append(f"kill {killed}: {path.parent.name} was written again")
                written = {path: path.stat().st_mtime_ns for path in study.glob("trials/*/result.json")}
                begun = len(list(study.glob("trials/*/run/checkpoints/step-*")))
                print(
                    f"study {rounds}, kill {killed} after {wait:5.1f} s: {len(written):2d} trials done, "
                    f"{begun} checkpoints",
                    flush=True,
                )
            process = start(folder, study.name)
            _, errors = process.communicate()
            if process.returncode != 0:
                wrong.append(f"the last run of study {rounds} ended with {process.returncode}: {errors.decode()}")
            again += _compare(study, expected, f"study {rounds}", wrong)
        print(f"{killed} kills in {rounds} studies; {again} trials were begun again and resumed; {len(wrong)} faults")
        for line in wrong:
            print(line)
        return int(bool(wrong))


def _compare(study: Path, expected: dict[str, dict[str, Any]], name: str, wrong: list[str]) -> int:
    """Every trial there, once, with the numbers of the uncut study; how many were begun more than once."""
    found, log = results(study), lines(study / "log.jsonl")
    ends, starts = (Counter(line["key"] for line in log if line["event"] == event) for event in ("end", "start"))
    wrong += [f"{name}: {key} was lost" for key in expected.keys() - found.keys()]
    wrong += [f"{name}: {key} is nobody's" for key in found.keys() - expected.keys()]
    wrong += [f"{name}: {key} ended {count} times" for key, count in ends.items() if count != 1]
    wrong += [f"{name}: {key} has other numbers" for key in expected if key in found and expected[key] != found[key]]
    print(f"{name}: {len(found)} of {len(expected)} trials, {sum(starts.values())} times begun", flush=True)
    return sum(starts.values()) - len(starts)


if __name__ == "__main__":
    sys.exit(main())

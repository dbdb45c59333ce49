"""Two processes, one run: the same numbers as one, one writer, one decision."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks, free_port
from safetensors.torch import load_file
from tiny_run import environment, options, resume, start, write_text

from statewise.training.folder import newest_verified

SETTINGS: dict[str, Any] = {"train.steps": 12, "train.log_every": 1, "train.accumulate": 2, "model.depth": 2}
# What goes wrong, and on which rank; then the ordinary command line.
FAULTY = """
import os, signal, sys
import torch
from statewise.tasks import LanguageModelJob
from statewise.__main__ import main

fault, honest = os.environ.get("FAULT"), LanguageModelJob.window

def window(self, step):
    found = honest(self, step)
    if step == 7 and os.environ["RANK"] == "1":
        if fault == "signal":
            signal.raise_signal(signal.SIGTERM)
        if fault == "nan":
            LanguageModelJob.loss = lambda self, *rest: (loss(self, *rest)[0] * torch.nan, rest[-1])
    return found

def evaluate(self, *rest):
    raise ZeroDivisionError("in the evaluation")

loss = LanguageModelJob.loss
LanguageModelJob.window = window
if fault == "evaluation":
    LanguageModelJob.evaluate = evaluate
main()
"""

JOINED = """
import torch.distributed as dist
from statewise import cli

dist.init_process_group("gloo")
assert cli._run() == 0
print("still", dist.get_world_size())
dist.destroy_process_group()
"""


def two(script: Path, *argv: str, fault: str = "") -> list[tuple[int, str]]:
    """Both ranks as torchrun starts them, each with its exit code and what it said."""
    port = str(free_port())
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "FAULT": fault}
    children = [
        subprocess.Popen(
            [sys.executable, str(script), *argv],
            env=environment(RANK=str(rank), LOCAL_RANK=str(rank), **shared),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [child.communicate(timeout=90)[0] for child in children]
    finally:
        for child in children:
            child.kill()
    return [(child.returncode, text) for child, text in zip(children, said, strict=True)]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("script") / "faulty.py"
    path.write_text(FAULTY)
    return path


@pytest.fixture(scope="module")
def uncut(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By torchrun itself, once."""
    out = tmp_path_factory.mktemp("uncut") / "run"
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    argv = ["-m", "statewise", "train", "lstm", "--text", str(text), "--out", str(out), "--json", "--quiet"]
    done = subprocess.run(
        [sys.executable, *launcher, *argv, *options(SETTINGS)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["step"] == 12  # one rank speaks, so it is one JSON object
    return out


def losses(run: Path) -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if "loss" in record]


def distance(a: Path, b: Path) -> float:
    first, second = load_file(a), load_file(b)
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


LAST = "checkpoints/step-00000012/model.safetensors"


def test_two_are_as_good_as_one(uncut: Path, text: Path, tmp_path: Path) -> None:
    alone = start("lstm", text, tmp_path / "alone", SETTINGS)
    assert losses(uncut) == pytest.approx(losses(alone.path), abs=1e-6)
    assert len(losses(uncut)) == 12
    assert distance(uncut / LAST, alone.path / LAST) < 1e-6
    assert distance(uncut / LAST, alone.path / "checkpoints/step-00000008/model.safetensors") > 1e-4


def test_only_the_first_writes(uncut: Path) -> None:
    assert len(list(uncut.glob("events.out.*"))) == 1
    assert not list(uncut.rglob(".tmp-*"))
    assert [path.name for path in uncut.parent.iterdir()] == ["run"]
    checkpoint, _ = newest_verified(uncut)
    assert checkpoint is not None
    assert checkpoint.progress["world"] == 2
    carried = load_file(checkpoint.path / "carried.safetensors")
    assert {len(leaf) for leaf in carried.values()} == {4}  # the rows of both


def test_a_process_group_of_the_caller_is_used_and_left(uncut: Path, text: Path, tmp_path: Path, ranks: Ranks) -> None:
    """Ray Train and others make it before they call `train`."""
    joined = tmp_path / "joined.py"
    joined.write_text(JOINED)
    argv = ["train", "lstm", "--text", str(text), "--out", str(tmp_path / "run"), "--quiet", *options(SETTINGS)]
    assert all("still 2" in said for said in ranks.all(2, str(joined), *argv))
    assert (tmp_path / "run/model.safetensors").read_bytes() == (uncut / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_by_the_clock_both_end_at_one_step(text: Path, script: Path, tmp_path: Path) -> None:
    """They agree on how long a step took: else one would wait for the other, or go at another rate."""
    out = tmp_path / "run"
    timed = {**SETTINGS, "train.seconds": 1.5}
    argv = ["train", "lstm", "--text", str(text), "--out", str(out), "--quiet", *options(timed)]
    assert [code for code, _ in two(script, *argv)] == [0, 0]
    checkpoint, _ = newest_verified(out)
    assert checkpoint is not None
    records = [json.loads(line) for line in (out / "timing.jsonl").read_text().splitlines()]
    *before, last = [record for record in records if "seconds" in record]
    assert last["seconds"] == checkpoint.progress["seconds"]
    # However long a step takes: it ends where one more would end further from the budget.
    over = [record["seconds"] * (1 + 0.5 / record["step"]) >= 1.5 for record in (*before, last)]
    assert over == [False] * len(before) + [True]


@pytest.mark.slow
def test_a_signal_to_one_stops_both_and_either_number_goes_on(
    uncut: Path, text: Path, script: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    argv = ["train", "lstm", "--text", str(text), "--out", str(out), "--quiet", *options(SETTINGS)]
    ended = two(script, *argv, fault="signal")
    assert [code for code, _ in ended] == [143, 143], ended
    checkpoint, skipped = newest_verified(out)
    assert checkpoint is not None
    assert (checkpoint.step, skipped) == (8, [])
    shutil.copytree(out, tmp_path / "alone")

    assert [code for code, _ in two(script, "train", "--resume", "--out", str(out), "--quiet")] == [0, 0]
    assert (out / "metrics.jsonl").read_bytes() == (uncut / "metrics.jsonl").read_bytes()
    for name in ("model.safetensors", LAST):
        assert (out / name).read_bytes() == (uncut / name).read_bytes()

    alone = resume(tmp_path / "alone")
    assert alone.resumed_from == 8
    assert distance(alone.path / LAST, uncut / LAST) < 1e-6


@pytest.mark.slow
def test_muon_resumes_exactly_in_two(text: Path, script: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "train.optimizer": "muon"}

    def argv(out: Path) -> list[str]:
        return ["train", "lstm", "--text", str(text), "--out", str(out), "--quiet", *options(settings)]

    assert [code for code, _ in two(script, *argv(tmp_path / "uncut"))] == [0, 0]
    out = tmp_path / "cut"
    assert [code for code, _ in two(script, *argv(out), fault="signal")] == [143, 143]
    assert [code for code, _ in two(script, "train", "--resume", "--out", str(out), "--quiet")] == [0, 0]
    for name in ("metrics.jsonl", "model.safetensors", LAST):
        assert (out / name).read_bytes() == (tmp_path / "uncut" / name).read_bytes()


@pytest.mark.slow
def test_a_nan_on_one_stops_both(text: Path, script: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    argv = ["train", "lstm", "--text", str(text), "--out", str(out), "--quiet", *options(SETTINGS)]
    ended = two(script, *argv, fault="nan")
    assert [code for code, _ in ended] == [3, 3], ended
    assert all("is not finite at step 8; the weights were not updated" in said for _, said in ended)
    checkpoint, _ = newest_verified(out)
    assert checkpoint is not None
    assert checkpoint.step == 6


@pytest.mark.slow
def test_an_evaluation_that_fails_is_saved_by_both(uncut: Path, text: Path, script: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    argv = ["train", "lstm", "--text", str(text), "--out", str(out), "--quiet", *options(SETTINGS)]
    (first, said), (second, also) = two(script, *argv, fault="evaluation")
    assert (first, second) == (1, 1)
    assert "in the evaluation" in said
    assert "training is saved up to step 6" in said
    assert "the evaluation failed on rank 0" in also
    assert [code for code, _ in two(script, "train", "--resume", "--out", str(out), "--quiet")] == [0, 0]
    for name in ("metrics.jsonl", "model.safetensors", LAST):
        assert (out / name).read_bytes() == (uncut / name).read_bytes()

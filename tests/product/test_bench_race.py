"""The race to a validation loss: what it says of our side is so, and a peer is read by its own log."""

import importlib.util
import json
import math
import sys
from pathlib import Path

import pytest
from tiny_run import ROOT, write_text

SMALL = {
    "model.width": 8,
    "train.steps": 5,
    "train.batch": 4,
    "train.truncation": 8,
    "train.evaluate_every": 2,
    "train.optimizer": "muon",
}
# What nanoGPT's own script says, and when; it would go on for longer than anybody waits.
TRAIN = """
import time
assert open("data/shakespeare_char/meta").read() == "prepared"
print("number of parameters: 10.65M")
print("step 0: train loss 4.2874, val loss 4.2823")
print("iter 0: loss 4.2659, time 31.01ms, mfu -100.00%")
print("step 250: train loss 1.9, val loss 2.0000")
time.sleep(600)
"""
PREPARE = """
import os, requests
open(os.path.join(os.path.dirname(__file__), "meta"), "w").write("prepared")
"""


def race(*argv: str) -> None:
    """`python benchmarks/race.py ...`, in this process; what it starts is processes still."""
    location = importlib.util.spec_from_file_location("race", ROOT / "benchmarks" / "race.py")
    assert location is not None
    assert location.loader is not None
    module = importlib.util.module_from_spec(location)
    settings = [word for path, value in SMALL.items() for word in ("--set", f"{path}={value}")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")  # what a script finds beside it
        patch.setattr(sys, "argv", ["race.py", *settings, *argv])
        location.loader.exec_module(module)
        module.main()


def made_peer(folder: Path) -> Path:
    files = {
        "train.py": TRAIN,
        "config/train_shakespeare_char.py": "",
        "data/shakespeare_char/prepare.py": PREPARE,
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.mark.slow
def test_both_sides_by_the_clock_from_their_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, peer, out = write_text(tmp_path), made_peer(tmp_path / "nanoGPT"), tmp_path / "race.json"
    race(
        "--text",
        str(text),
        "--recipe",
        "lstm",
        "--target",
        "2.1",
        "--until-target",
        "--peer",
        str(peer),
        "--json",
        str(out),
    )
    ours, theirs = json.loads(out.read_text())["runs"]
    assert [one["step"] for one in theirs["seen"]] == [0, 250]  # ended when it was good enough
    assert theirs["seen"][1]["fresh"] == 2.0
    assert [one["step"] for one in ours["seen"]] == [2, 4, 5]
    assert all(math.isfinite(one["carried"]) for one in ours["seen"])
    last = ours["seen"][-1]
    assert 0 < last["training_seconds"] < last["seconds"] < ours["whole_seconds"]
    table = capsys.readouterr().out
    assert "not reached" in table
    assert "nanoGPT" in table


def test_on_a_cpu_both_precisions_are_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What crosses is judged again, to the same figure, and the run ends there."""
    text = str(write_text(tmp_path))
    race("--child", "--text", text, "--recipe", "lstm", "--target", "100", "--until-target")
    start, seen, again = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert start["parameters"] > 0
    assert seen["step"] == again["float32_step"] == 2
    assert again["float32_fresh"] == pytest.approx(seen["fresh"], rel=1e-6)
    assert again["float32_carried"] == pytest.approx(seen["carried"], rel=1e-6)
    assert seen["fresh"] != seen["carried"]


def test_mistakes_are_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"none\.txt' is not a file"):
        race("--text", str(tmp_path / "none.txt"))
    text = str(write_text(tmp_path))
    with pytest.raises(SystemExit, match="did you mean 'lstm'"):
        race("--child", "--text", text, "--recipe", "lstn")

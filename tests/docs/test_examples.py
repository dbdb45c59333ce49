"""Every example is run as a user runs it, with small settings, where only the core dependencies are installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from user_environment import ROOT, User

# What each is started with, and what it must say.
EXAMPLES = {
    "other_loops": ("--steps 3", "gru by the plain loop, 3 steps"),
    "recommender": ("--users 40 --movies 30", "error on those kept back"),
    "stationarity": ("--steps 2 --seeds 2 --length 400", "0.9 becomes -0.9 halfway"),
    "termination": ("--steps 2 --width 4 --cases 12", "Lengths of 13 and more were never learned from."),
    "ways_to_condition": ("--steps 1 --cases 4 --parameters 3000", "| attention | mean | no |"),
}


def test_every_example_is_here() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*EXAMPLES, "ray_train"}


@pytest.mark.parametrize(
    "name",  # all rows of the costly one are checked by tests/learning/test_ways_to_condition.py, in its own process
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "ways_to_condition")) for name in EXAMPLES],
)
def test_an_example_runs(name: str, user: User, tmp_path: Path) -> None:
    options, said = EXAMPLES[name]
    done = user.run(user.python, ROOT / f"examples/{name}.py", *options.split(), folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert said in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("loop", "package"), [("lightning", "lightning"), ("trainer", "accelerate")])
def test_loops_of_other_libraries(loop: str, package: str, tmp_path: Path) -> None:
    """In this environment, if it has them: a user's has the core alone."""
    pytest.importorskip(package)
    command = [sys.executable, ROOT / "examples/other_loops.py", "--loop", loop, "--steps", "60"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-4]) < 1.5


def test_workers_of_ray_train(tmp_path: Path) -> None:
    pytest.importorskip("ray.train.torch")
    command = [sys.executable, ROOT / "examples/ray_train.py", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "3 records, the last of step 20" in done.stdout
    assert len(list((tmp_path / "run/checkpoints/step-00000020").glob("optimizer-*-of-00002.safetensors"))) == 2


def test_a_mistake_is_told_in_short(user: User, tmp_path: Path) -> None:
    done = user.run(user.python, ROOT / "examples/stationarity.py", "--seeds", "1", folder=tmp_path)
    assert (done.returncode, "Traceback" in done.stdout) == (1, False)
    assert done.stdout.startswith("error: ")

"""Every example is run as a user runs it, with small settings, where only the core dependencies are installed."""

from pathlib import Path

import pytest
from user_environment import ROOT, User

# What each is started with, and what it must say.
EXAMPLES = {
    "recommender": ("--users 40 --movies 30", "error on those kept back"),
    "stationarity": ("--steps 2 --seeds 2 --length 400", "0.9 becomes -0.9 halfway"),
    "termination": ("--steps 2 --width 4 --cases 12", "Lengths of 13 and more were never learned from."),
    "ways_to_condition": ("--steps 1 --cases 4 --parameters 3000", "| attention | mean | no |"),
}


def test_every_example_is_here() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, user: User, tmp_path: Path) -> None:
    options, said = EXAMPLES[name]
    done = user.run(user.python, ROOT / f"examples/{name}.py", *options.split(), folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert said in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_mistake_is_told_in_short(user: User, tmp_path: Path) -> None:
    done = user.run(user.python, ROOT / "examples/stationarity.py", "--seeds", "1", folder=tmp_path)
    assert (done.returncode, "Traceback" in done.stdout) == (1, False)
    assert done.stdout.startswith("error: ")

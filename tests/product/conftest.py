"""A tiny trained run, made once for all tests of the product."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import TEXT, TINY, call, environment
from limited import Limited
from ranks import Ranks
from warm import serving, worker_command

from statewise.comparison import pool


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `text.txt` and `runs/lstm`, trained on it. Tests leave both as they are."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "text.txt").write_text(TEXT)
    with contextlib.chdir(folder):
        said = call("train", "lstm", "--text", "text.txt", *TINY, "--out", "runs/lstm", "--quiet")
    assert said.code == 0, said.err
    return folder


@pytest.fixture
def here(world: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(world)
    return world


@pytest.fixture(scope="session")
def limited() -> Iterator[Limited]:
    made = Limited()
    yield made
    made.close()


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """By day, ranks are forks of one process; by night, and in one test by day, torchrun starts them."""
    made = Ranks()
    yield made
    made.close()


@pytest.fixture(scope="session")
def warm_command() -> Iterator[tuple[str, ...]]:
    """Starts a worker of a study by a fork of one process that has imported everything (`warm.py`)."""
    with serving(sys.executable, environment()) as place:
        yield worker_command(sys.executable, place)


@pytest.fixture
def warm_workers(warm_command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of studies are forks: to import PyTorch and its compiler anew takes longer than a tiny study."""
    monkeypatch.setattr(pool, "COMMAND", warm_command)

"""A tiny trained run, made once for all tests of the product."""

import contextlib
from pathlib import Path

import pytest
from command import TEXT, TINY, call


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

"""The same trials on a local Ray: the same numbers, retries, cancellation; the engines go on with each other's work."""

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest
from command import call
from tiny_study import driver, results, saved, sessions, trial_pids, wait_until, wait_until_gone, write_study

pytest.importorskip("ray", reason="needs the extra `ray`")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, and what it gives without Ray, in `local`."""
    folder = tmp_path_factory.mktemp("ray")
    write_study(folder, steps=400, every=20)
    with contextlib.chdir(folder):
        assert call("compare", "tiny.toml", "--workers", "2", "--out", "local", "--quiet").code == 0
    return folder


def pids_of(trial: Path) -> list[int]:
    """Of all that have worked on it."""
    lines = [json.loads(line) for line in (trial / "sessions.jsonl").read_text().splitlines()]
    return [line["pid"] for line in lines if "pid" in line]


def test_a_process_that_dies_is_replaced_and_the_numbers_are_the_same(folder: Path) -> None:
    out = folder / "ray"
    process = driver(folder, folder / "tiny.toml", out, "--engine", "ray", workers="2")
    wait_until(lambda: bool(saved(out)), process, seconds=150)
    begun = saved(out)[0]
    (pid,) = pids_of(begun)
    os.kill(pid, signal.SIGKILL)
    said, err = process.communicate(timeout=250)
    assert process.returncode == 0, err
    assert results(out) == results(folder / "local")
    assert len(pids_of(begun)) == 2  # it was begun again,
    assert sessions(out) == 5  # and nothing else was
    lines = [json.loads(line) for line in (begun / "sessions.jsonl").read_text().splitlines()]
    assert [line["step"] > 0 for line in lines if "step" in line] == [False, True]  # where it had been saved
    assert "lstm" in said


def test_what_is_cancelled_on_ray_is_saved_and_goes_on_here(folder: Path) -> None:
    out = folder / "cancelled"
    process = driver(folder, folder / "tiny.toml", out, "--engine", "ray")
    wait_until(lambda: bool(saved(out)), process, seconds=150)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    wait_until_gone(trial_pids(out))
    assert json.loads((out / "report.json").read_text())["missing"]
    with contextlib.chdir(folder):
        assert call("compare", "tiny.toml", "--out", "cancelled", "--workers", "2").code == 0
    assert results(out) == results(folder / "local")
    assert sessions(out) > 4

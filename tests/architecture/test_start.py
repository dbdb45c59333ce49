"""The command line answers at once: nobody waits for torch to read a help text."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from package_source import ROOT

import statewise


def processor_seconds(*words: str, says: str = "") -> float:
    """The least of three processes: unlike the clock on the wall, it does not feel who else is at work here."""
    best = float("inf")
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.returncode == 0, done.stderr
        assert says in done.stdout
    return best


@pytest.mark.parametrize(("argument", "says"), [("--help", "train"), ("--version", statewise.__version__)])
def test_it_answers_at_once(argument: str, says: str) -> None:
    assert processor_seconds("-m", "statewise", argument, says=says) < 0.4


@pytest.mark.slow
def test_the_first_token_takes_little_more_than_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bytecode files half of the time would be compiling."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    words = ("-m", "statewise", "generate", "shakespeare-lstm", "--prompt", "ROMEO:", "--tokens", "1")
    whole, floor = processor_seconds(*words, says="ROMEO:"), processor_seconds("-c", "import torch")
    assert whole < 1.5 * floor, f"{whole:.2f} s, and PyTorch alone {floor:.2f} s"


def test_specs_are_built_by_one_thread_at_a_time() -> None:
    """They are built when they are first used, which may be in several trainings at once."""
    code = """
import threading
from statewise.specs import parse_spec
made, start = [], threading.Barrier(8)
def make():
    start.wait()
    made.append(parse_spec({"task": "tagging", "model": {"kind": "gru", "width": 8}}).model.width)
threads = [threading.Thread(target=make) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(made)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == f"{[8] * 8}\n", done.stderr

"""The command line answers at once: nobody waits for torch to read a help text."""

import resource
import subprocess
import sys

import pytest
from package_source import ROOT

import statewise


def processor_seconds() -> float:
    """Of all children so far: unlike the clock on the wall, it does not feel who else is at work here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_it_answers_at_once(argument: str) -> None:
    best = float("inf")
    for _ in range(3):
        start = processor_seconds()
        done = subprocess.run(
            [sys.executable, "-m", "statewise", argument], cwd=ROOT, capture_output=True, text=True, check=False
        )
        best = min(best, processor_seconds() - start)
        assert done.returncode == 0, done.stderr
        assert ("train" if argument == "--help" else statewise.__version__) in done.stdout
    assert best < 0.4, f"{best:.2f} s at best"

"""`benchmarks/serve_soak.py`: it notices growth, it passes in seconds, and in ten minutes of the nightly tests."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from statewise.serving import memory

ROOT = Path(__file__).parents[2]


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return pytest.importorskip("serve_soak", reason="benchmarks/ is not here")


@pytest.mark.parametrize(
    ("grows", "complaint"),
    [
        ({}, None),
        ({"memory": 100_000}, "idle memory grew"),
        ({"threads": 0.1}, "threads grew"),
        ({"files": 1}, "files are open"),
    ],
)
def test_growth_is_noticed(soak: Any, grows: dict[str, float], complaint: str | None) -> None:
    """Each line is added to a noisy sample as often as there were samples before it."""
    flat = {"memory": 500_000_000, "threads": 5, "files": 14}
    noise = [0, 3_000_000, -2_000_000]

    def sample(at: int) -> Any:
        made = {name: int(value + at * grows.get(name, 0)) for name, value in flat.items()}
        return soak.Sample(
            seconds=5.0 * at,
            requests=10 * at,
            rest=at % 6 == 5 or at == 99,
            **(made | {"memory": made["memory"] + noise[at % 3]}),
        )

    found = soak.complaints([sample(at) for at in range(100)], sample(0))
    assert [text for text in found if complaint is None or complaint not in text] == []
    assert bool(found) == (complaint is not None)


def test_a_server_is_idle_when_nobody_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """States that are read and written are no work of the engine, and leave memory behind all the same."""
    clock = {"now": 0.0, "cpu": 0.0}
    monkeypatch.setattr(memory.time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(memory.time, "process_time", lambda: clock["cpu"])
    monkeypatch.setattr(memory, "trim", lambda: None)
    house = memory.Housekeeping()

    def passes(seconds: float, *, cores: float, busy: bool = False) -> int:
        """How often memory is given back meanwhile."""
        due = 0
        for _ in range(round(seconds / 0.5)):
            clock["now"] += 0.5
            clock["cpu"] += 0.5 * cores
            due += house.after_turn(busy=busy)
        return due

    assert passes(5, cores=0.01) == 0  # nothing was done yet
    assert passes(5, cores=1, busy=True) == 0
    assert passes(5, cores=0.3) == 0  # the HTTP side works on
    assert passes(5, cores=0.01) == 1
    assert passes(60, cores=0.01) == 0
    assert passes(1, cores=0.3) == 0
    assert passes(5, cores=0.01) == 1


_READS = """
import ctypes, sys
from statewise.cli.serve import prepare_server
prepare_server()
import torch

class Use(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "a b c d e f g used h i".split()]

measure = ctypes.CDLL(None).mallinfo2
measure.restype = Use
lstm = torch.nn.LSTM(256, 256, 2, batch_first=True)
with torch.no_grad():
    for length in range(1, 300):
        lstm(torch.zeros(2, length, 256))
        if length == 100:
            before = measure().used
print(measure().used - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc says how much is in use")
def test_prompts_of_all_lengths_fill_no_memory() -> None:
    """oneDNN keeps what it made for a length: with the number that it keeps by itself, 30 MB for 200 of them."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("ONEDNN_PRIMITIVE")}
    done = subprocess.run(
        [sys.executable, "-c", _READS], cwd=ROOT, env=variables, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 2_000_000


@pytest.mark.slow
@pytest.mark.parametrize("minutes", [0.1, pytest.param(10, marks=pytest.mark.timeout(900))])
def test_a_server_stays_as_it_is(minutes: float) -> None:
    """In seconds the memory still grows: what is checked then are the answers, the open files and the log."""
    command = [sys.executable, "benchmarks/serve_soak.py", "--minutes", str(minutes), "--every", str(minutes / 2)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith("failed:")]
    if minutes < 1:
        failed = [line for line in failed if "grew from" not in line]
    assert failed == [], done.stdout
    assert "session" in done.stdout, done.stdout + done.stderr

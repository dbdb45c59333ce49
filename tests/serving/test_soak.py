"""`benchmarks/serve_soak.py`: it notices growth, it passes in seconds, and in ten minutes of the nightly tests."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return pytest.importorskip("serve_soak", reason="benchmarks/ is not here")


@pytest.mark.parametrize(
    ("grows", "complaint"),
    [
        ({}, None),
        ({"memory": 100_000}, "memory at rest grew"),
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


@pytest.mark.parametrize("minutes", [0.1, pytest.param(10, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_a_server_stays_as_it_is(minutes: float) -> None:
    """In seconds the memory still grows: what is checked then are the answers, the open files and the log."""
    command = [sys.executable, "benchmarks/serve_soak.py", "--minutes", str(minutes), "--every", str(minutes / 2)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith("failed:")]
    if minutes < 1:
        failed = [line for line in failed if "grew from" not in line]
    assert failed == [], done.stdout
    assert "session" in done.stdout, done.stdout + done.stderr

"""A hundred thousand tokens through every lens: memory stays bounded, and whoever waits is told how far it is."""

import resource
import sys
from pathlib import Path

import pytest
from command import TEXT, run

from statewise.inspection.lenses import LENSES

TOKENS = 100_000
MOST = 2 << 30  # bytes


@pytest.mark.slow
@pytest.mark.parametrize("lens", [one.name for one in LENSES if "language_model" in one.tasks])
def test_a_long_text_fits(lens: str, here: Path, tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_text((TEXT * (TOKENS // len(TEXT) + 1))[:TOKENS])
    said = run("inspect", "runs/lstm", lens, "--text", str(text), "--out", str(tmp_path / "page"), "--static")
    assert said.code == 0, said.err
    # The largest of all children so far: an upper bound for this one.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert peak < MOST

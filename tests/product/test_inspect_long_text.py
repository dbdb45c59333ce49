"""A hundred thousand tokens through every lens: memory stays bounded, and whoever waits is told how far it is."""

import resource
import sys
import time
from pathlib import Path

import pytest
from command import TEXT, run
from task_runs import STEPS, write_files

from statewise.inspection.lenses import LENSES
from statewise.tasks import train
from statewise.training.progress import Silent

TOKENS = 100_000
MOST = 2 << 30  # bytes
PATIENCE = 15.0  # seconds after which something must have been said


@pytest.mark.slow
@pytest.mark.parametrize("lens", [one.name for one in LENSES if one.needs_run])
def test_a_long_text_fits(lens: str, here: Path, tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_text((TEXT * (TOKENS // len(TEXT) + 1))[:TOKENS])
    said = run("inspect", "runs/lstm", lens, "--text", str(text), "--out", str(tmp_path / "page"), "--static")
    assert said.code == 0, said.err
    # The largest of all children so far: an upper bound for this one.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert peak < MOST


@pytest.mark.slow
@pytest.mark.parametrize("lens", [one.name for one in LENSES if one.quick])
def test_a_long_row_fits(lens: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    settings = {"data.longest": TOKENS, "data.min_count": 1, "model.kind": "lstm", "model.embedding": 8}
    one_way = {"reader.bidirectional": False, "reader.summary": "last"}
    train(
        "classification",
        settings={**STEPS, **settings, **one_way},
        data=tmp_path / "rows.tsv",
        out=tmp_path / "run",
        display=Silent(),
    )
    rows = [f"{'a warm film of the year and more ' * (TOKENS // 8)}\tgood", "a dull film and more\tbad"]
    (tmp_path / "long.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    said = run(
        *("inspect", str(tmp_path / "run"), lens, "--data", str(tmp_path / "long.tsv")),
        *("--out", str(tmp_path / "page"), "--static"),
    )
    assert said.code == 0, said.err
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert peak < MOST


@pytest.mark.slow
@pytest.mark.timeout(1200)  # what is looked at is composed node by node, as the equation has it
@pytest.mark.parametrize("lens", [one.name for one in LENSES if one.quick])
def test_a_long_tree_fits(lens: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    train("tree", settings=STEPS, data=tmp_path / "trees.txt", out=tmp_path / "run", display=Silent())
    (tmp_path / "long.txt").write_text(f"{_balanced(TOKENS)}\n(0 (1 1) (0 (0 0) (1 1)))\n")
    began = time.monotonic()
    said = run(
        *("inspect", str(tmp_path / "run"), lens, "--data", str(tmp_path / "long.txt")),
        *("--out", str(tmp_path / "page"), "--static"),
        timeout=1100,
    )
    assert said.code == 0, said.err
    assert time.monotonic() - began < PATIENCE or "so far" in said.err or "a second" in said.err
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert peak < MOST


def _balanced(nodes: int) -> str:
    level = [f"({at % 2} {at % 2})" for at in range((nodes + 1) // 2)]
    while len(level) > 1:
        joined = [f"({min(left[1], right[1])} {left} {right})" for left, right in zip(level[::2], level[1::2])]
        level = joined + level[2 * len(joined) :]
    return level[0]

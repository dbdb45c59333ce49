"""A hundred thousand tokens through every lens: memory stays bounded, and whoever waits is told how far it is."""

import resource
import sys
from pathlib import Path

import pytest
from command import TEXT, run
from task_runs import STEPS, write_files

from statewise.inspection.lenses import LENSES
from statewise.tasks import train
from statewise.training.progress import Silent

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

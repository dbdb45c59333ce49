"""Each way to end is learned from a spec alone, by one machine that reads and writes: as many marks as there were."""

from pathlib import Path

import numpy as np
import pytest

from statewise.models.build_seq2seq import SCHEMES
from statewise.tasks import train
from statewise.tasks.translation import TranslationRun
from statewise.training.progress import Silent


def pairs(path: Path, count: int, *, shortest: int, longest: int, seed: int) -> str:
    """A source of n letters, a target of n marks: the letters say nothing, how many there are says all."""
    draw = np.random.default_rng(seed)
    lines = []
    for length in draw.integers(shortest, longest + 1, size=count):
        lines.append(" ".join(draw.choice(["a", "b"], size=length)) + "\t" + " ".join(["x"] * length) + "\n")
    path.write_text("".join(lines))
    return str(path)


@pytest.mark.parametrize("scheme", ["end", *(pytest.param(s, marks=pytest.mark.slow) for s in SCHEMES if s != "end")])
def test_as_many_as_there_were(scheme: str, tmp_path: Path) -> None:
    settings = {
        "data.train": pairs(tmp_path / "train.tsv", 400, shortest=1, longest=7, seed=0),
        "data.validation": pairs(tmp_path / "held.tsv", 100, shortest=1, longest=7, seed=1),
        "model.kind": "lstm",
        "model.width": 16,
        "termination.kind": scheme,
        "train.steps": 250,
        "train.lr": 0.01,
        "train.evaluate_every": 250,
        "train.save_every": 250,
        "decoding.watch": 0,
        "decoding.beam": 1,
    }
    run = train("translation", settings=settings, out=tmp_path / "run", display=Silent()).load()
    assert isinstance(run, TranslationRun)
    found = run.evaluate()
    assert found.exact >= 0.95
    assert found.length_error <= 0.05
    assert found.nats < 0.05
    assert found.lengths is not None
    assert found.lengths["exact"] >= 0.95, "of the median of what is drawn, too"
    longer = run.evaluate(pairs(tmp_path / "long.tsv", 60, shortest=5, longest=12, seed=2))
    assert {row["beyond"] for row in longer.by_length} == {False, True}
    assert longer.by_length[0]["right_length"] >= 0.9

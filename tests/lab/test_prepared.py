"""What was measured before is what the package measures now."""

import gzip
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from statewise.lab.extra import BLOCK, BLOCKS, CONTEXTS, extra, truncation
from statewise.models import LINEAGE, build, cost_of, path, training_bytes
from statewise.specs import from_json
from statewise.tasks import LanguageModelRun, load


@pytest.fixture(scope="module")
def prepared() -> dict[str, Any]:
    return extra()


def test_the_whole_lineage_has_a_bill(prepared: dict[str, Any]) -> None:
    assert prepared["bill"]["contexts"] == list(CONTEXTS)
    assert [row["name"] for row in prepared["bill"]["models"]] == [row.name for row in LINEAGE]


@pytest.mark.parametrize("row", LINEAGE, ids=lambda row: row.name)
def test_costs_are_those_of_the_package(row: Any, prepared: dict[str, Any]) -> None:
    (bill,) = (one for one in prepared["bill"]["models"] if one["name"] == row.name)
    at = CONTEXTS.index(1024)
    cost = cost_of(partial(build, row.spec, vocab=prepared["bill"]["vocab"]), context=1024)
    assert (bill["parameters"], bill["flops"][at], bill["state"][at]) == cost
    if row.spec.learns == "gradient":
        assert bill["path"] == path(build(row.spec.small(), vocab=prepared["bill"]["vocab"]))
        assert bill["training"][0] == training_bytes(build(row.spec, vocab=prepared["bill"]["vocab"]), CONTEXTS[0])
    else:
        assert bill["training"] is None


def test_truncated_gradients_are_those_of_the_shipped_run(prepared: dict[str, Any]) -> None:
    run = load("shakespeare-elman", device="cpu")
    assert isinstance(run, LanguageModelRun)
    now, before = truncation(run), prepared["truncation"][0]
    assert now["pieces"] == before["pieces"]
    assert len(now["pieces"]) == BLOCK * BLOCKS
    assert now["held"] == before["held"]
    for found, kept in zip(now["products"], before["products"], strict=True):
        torch.testing.assert_close(torch.tensor(found), torch.tensor(kept), rtol=1e-4, atol=1e-9)


@pytest.mark.slow
def test_the_shipped_models_can_be_made_again(tmp_path: Path) -> None:
    """The commands of docs/lab.md, with two models each and few updates."""
    root = Path(__file__).parents[2]
    text = tmp_path / "text.txt"
    text.write_text("`It is a cat,' said Alice, `and a very curious one.'\n" * 400, encoding="utf-8")
    small = ("--minutes", "0.02", "-j", "1", "--quiet")
    compare = (sys.executable, "-m", "statewise", "compare")
    study = str(root / "statewise/lab/lineage.toml")
    budget = ("--seeds", "1", "--set", "budget.amount=16000", "--set", "budget.tolerance=0.1")
    ship = (sys.executable, str(root / "tools/ship_lab.py"), "lab", "passages", "--out", ".")
    for command in (
        (*compare, study, "--data", str(text), "--out", "lab", "--only", "lstm", "--only", "markov", *small),
        (*compare, "passages", *budget, "--out", "passages", "--only", "gru", "--only", "window", *small),
        ship,
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr
    made = from_json(gzip.decompress((tmp_path / "lineage.json.gz").read_bytes()).decode())
    named = [(model["name"], model["task"]) for model in made["models"]]
    assert named[:2] == [("markov", "language_model"), ("lstm", "language_model")]
    assert named[2:] == [("window", "classification"), ("gru", "classification")]
    assert made["extra"]["ask"]["accuracy"].keys() == {"window", "gru"}
    assert len(made["extra"]["ask"]["passages"]) == 30

"""What was measured before is what the package measures now."""

from functools import partial
from typing import Any

import pytest
import torch

from statewise.lab.extra import BLOCK, BLOCKS, CONTEXTS, extra, truncation
from statewise.models import LINEAGE, build, cost_of, path, training_bytes
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

"""`statewise models --context N`: what each model has to remember by then."""

import json
from pathlib import Path

import pytest
from command import call


def test_bytes_after_a_context(here: Path) -> None:
    rows = {row["name"]: row for row in json.loads(call("models", "--context", "512", "--json").out)}
    assert rows["gru"]["context_bytes"] == rows["gru"]["state_bytes"] == 256 * 4
    assert rows["transformer"]["context_bytes"] == 2 * (2 * 512 * 256 * 4 + 8)
    assert all("context_bytes" in row for row in rows.values())
    assert rows["gru"]["flops_per_token"] == 6 * 256 * 512 + 2 * 256 * 65
    at_first = {row["name"]: row for row in json.loads(call("models", "--json").out)}
    grown = rows["transformer"]["flops_per_token"] - at_first["transformer"]["flops_per_token"]
    assert grown == 2 * 4 * 256 * 512, "scores and means over 512 more entries, in two layers"
    assert rows["tree"]["flops_per_token"] is None
    said = call("models", "--context", "512")
    assert said.code == 0
    assert "after 512" in said.out
    for figure in ("context_bytes", "flops_per_token"):
        assert f"{rows['transformer'][figure]:,}" in said.out, "no number is cut short"


@pytest.mark.parametrize("wrong", ["-1", "many"])
def test_a_wrong_context_is_refused(here: Path, wrong: str) -> None:
    assert call("models", "--context", wrong).code == 2

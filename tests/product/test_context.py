"""`statewise models --context N`: what each model has to remember by then."""

import json
from pathlib import Path

import pytest
from command import call


def test_bytes_after_a_context(here: Path) -> None:
    rows = {row["name"]: row for row in json.loads(call("models", "--context", "512", "--json").out)}
    assert rows["gru"]["context_bytes"] == rows["gru"]["initial_bytes"] == 256 * 4
    assert rows["transformer"]["context_bytes"] == 2 * (2 * 512 * 256 * 4 + 8)
    assert all("context_bytes" in row for row in rows.values())
    assert rows["gru"]["flops_per_token"] == 6 * 256 * 512 + 2 * 256 * 65
    at_first = {row["name"]: row for row in json.loads(call("models", "--context", "0", "--json").out)}
    grown = rows["transformer"]["flops_per_token"] - at_first["transformer"]["flops_per_token"]
    assert grown == 2 * 4 * 256 * 512, "scores and means over 512 more entries, in two layers"
    assert rows["tree"]["flops_per_token"] is None
    said = call("models", "--context", "512")
    assert said.code == 0
    assert "after 512" in said.out
    for figure in ("context_bytes", "flops_per_token"):
        assert f"{rows['transformer'][figure]:,}" in said.out, "no number is cut short"


def test_a_list_is_shown_at_a_stated_context(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = call("models").out
    rows = json.loads(call("models", "--json").out)
    assert "after 1,024 tokens" in said
    assert {row["context"] for row in rows} == {1024}
    lines = {words[0]: words for line in said.splitlines() if (words := line.split())}
    assert lines["transformer"][3] == f"{2 * (2 * 1024 * 256 * 4 + 8):,}", "a list has grown by then"
    assert max(map(len, said.splitlines())) <= 80
    flat = " ".join(said.split())
    for row in rows:
        assert f"state: {row['state']} fixed: {row['fixed']}" in flat, "nothing is lost on a narrow terminal"


def test_all_that_is_known_of_one_model(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    known = json.loads(call("models", "lstm", "--json").out)
    said = " ".join(call("models", "lstm").out.split())
    for key in ("family", "paper", "state", "fixed", "cost", "year"):
        assert str(known[key]) in said
    assert "statewise train lstm" in said
    assert call("models", "tree").code == call("models", "transformer_seq2seq").code == 0
    wrong = call("models", "lsmt")
    assert (wrong.code, "did you mean 'lstm'?" in wrong.err) == (2, True)


@pytest.mark.parametrize("wrong", ["-1", "many"])
def test_a_wrong_context_is_refused(here: Path, wrong: str) -> None:
    assert call("models", "--context", wrong).code == 2

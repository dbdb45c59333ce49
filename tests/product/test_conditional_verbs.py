"""The encoder-decoders at the command line: listed, measured, verified."""

import json
from functools import partial
from pathlib import Path

import pytest
from command import call

from statewise.models import ENCODER_DECODERS, build_seq2seq, num_parameters


def test_they_are_listed_with_what_they_keep_of_a_source(here: Path) -> None:
    rows = {row["name"]: row for row in json.loads(call("models", "--context", "100", "--json").out)}
    for row in ENCODER_DECODERS:
        assert rows[row.name]["parameters"] == num_parameters(
            partial(build_seq2seq, row.spec, source_vocab=65, target_vocab=65)
        )
        assert rows[row.name]["id"] == row.id
    assert rows["encoder_decoder"]["context_bytes"] == rows["encoder_decoder"]["initial_bytes"]
    # Keys and values of 100 places, in two layers.
    transformer = rows["transformer_seq2seq"]
    assert transformer["context_bytes"] - transformer["initial_bytes"] == 2 * 2 * 100 * 256 * 4
    listed = call("models").out
    assert all(row.name in listed for row in ENCODER_DECODERS)


@pytest.mark.parametrize(
    "name", [pytest.param(row.name, marks=[pytest.mark.slow] if at else []) for at, row in enumerate(ENCODER_DECODERS)]
)
def test_they_are_verified_by_name(here: Path, name: str) -> None:
    said = call("verify", name, "--json")
    assert said.code == 0, said.out
    findings = json.loads(said.out)
    row = next(row for row in ENCODER_DECODERS if row.name == name)
    assert len({finding["model"] for finding in findings}) == 1 + len(row.variants)
    assert all(finding["passed"] for finding in findings)

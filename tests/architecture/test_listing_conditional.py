"""Whoever is among the encoder-decoders is in the docs, the laws, the reference tests and the learning tests."""

import re
from pathlib import Path

import pytest
from package_source import ROOT

from statewise.models import ENCODER_DECODERS, LINEAGE, Conditional, ConditionalMachine, build_seq2seq

each_row = pytest.mark.parametrize("row", ENCODER_DECODERS, ids=[row.name for row in ENCODER_DECODERS])


def mentions(folder: Path, word: str) -> list[Path]:
    """Tests that name the row as a whole word: in quotes, or in the name of their file."""
    found = [path for path in folder.glob("test_*.py") if f'"{word}"' in path.read_text(encoding="utf-8")]
    return found + list(folder.glob(f"test_{word}.py"))


def test_they_are_in_order_of_time_and_named_once() -> None:
    assert [row.year for row in ENCODER_DECODERS] == sorted(row.year for row in ENCODER_DECODERS)
    names = [row.name for row in (*LINEAGE, *ENCODER_DECODERS)]
    assert len(names) == len(set(names)), "verify finds a model by its name"


@each_row
def test_a_row_says_all_it_should(row: Conditional) -> None:
    assert re.fullmatch(r"A\d+", row.id), "ids are rows of the mission"
    assert all([row.paper, row.state, row.fixed, row.cost, row.variants])
    for spec in (row.spec.small(), *row.variants):
        assert isinstance(build_seq2seq(spec, source_vocab=5, target_vocab=5), ConditionalMachine)


@each_row
def test_a_row_has_its_section(row: Conditional) -> None:
    page = (ROOT / "docs" / "models" / "encoder-decoder.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", page, flags=re.MULTILINE)
    (own,) = [section for section in sections if section.splitlines()[0].strip() == f"`{row.name}`"]
    assert str(row.year) in own
    assert row.id in own
    assert "What it fixed" in own
    assert "What it cost" in own


@each_row
def test_a_row_has_its_oracle_and_its_task(row: Conditional) -> None:
    tests = ROOT / "tests"
    assert mentions(tests / "reference", row.name), f"no reference test names {row.name}"
    assert mentions(tests / "learning", row.name), f"no learning test names {row.name}"


def test_the_laws_are_tried_on_the_table() -> None:
    laws = (ROOT / "tests" / "laws" / "test_conditional_laws.py").read_text(encoding="utf-8")
    assert "ENCODER_DECODERS" in laws
    assert "row.variants" in laws

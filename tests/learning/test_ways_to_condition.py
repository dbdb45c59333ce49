"""The ablation of the examples, in a very short form: equal sizes, every way tried, and a look beats a vector."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "ways_to_condition.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ways_to_condition", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pairs_are_what_they_say(example: ModuleType) -> None:
    for task in ("copy", "reverse"):
        source_BS, lengths_B, target_BT = example.pairs(task, 20, torch.Generator().manual_seed(0))
        for source, length, target in zip(source_BS.tolist(), lengths_B.tolist(), target_BT.tolist(), strict=True):
            read = source[:length] if task == "copy" else source[:length][::-1]
            assert target == read + [example.END] * (example.LONGEST + 1 - length)


def test_it_prints_a_row_for_every_way(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ways", "--steps", "1", "--cases", "8", "--parameters", "12000"])
    example.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]
    assert len({tuple(row[:3]) for row in rows}) == len(rows) == 16
    sizes = [int(row[3].replace(",", "")) for row in rows]
    assert max(sizes) < 1.05 * min(sizes)
    assert all(0 <= float(cell) <= 1 for row in rows for cell in row[4:])


@pytest.mark.slow
def test_a_look_beats_a_vector(example: ModuleType) -> None:
    exact = {}
    for context in ("initial", "attention"):
        model = example.taught(example.of_size(20_000, context=context), "copy", steps=120)
        _, exact[context] = example.judged(model, "copy", cases=200)
    assert exact["attention"] > exact["initial"] + 0.3, exact

"""Sequential and random batches: only who was trained with a carried state learns what lies beyond a window."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import statewise as sw
from statewise.comparison.study import load_study, spec_of
from statewise.tasks.language_model import LanguageModelRun

WINDOW, APART, TIMES, LETTERS = 4, 6, 8, "abcd"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A letter, then the same letter again and again: it is always further away than a window reaches."""
    generator = np.random.default_rng(0)
    runs = ((LETTERS[generator.integers(4)] + "." * (APART - 1)) * TIMES for _ in range(800))
    path = tmp_path_factory.mktemp("batches") / "letters.txt"
    path.write_text("".join(runs))
    return path


def trained(text: Path, order: str, out: Path) -> LanguageModelRun:
    settings = {
        "model.width": 24,
        "train.window": WINDOW,
        "train.truncation": "full",
        "data.order": order,
        "data.evaluate_state": "both",
    }
    path = sw.train("lstm", data=str(text), settings=settings, steps=150, lr=2e-2, device="cpu", out=out).path
    run = sw.load(path, device="cpu")
    assert isinstance(run, LanguageModelRun)
    return run


@pytest.fixture(scope="module")
def runs(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, LanguageModelRun]:
    folder = tmp_path_factory.mktemp("runs")
    return {order: trained(text, order, folder / order) for order in ("sequential", "random")}


def test_row_b5_only_sequential_batches_teach_the_use_of_the_carried_state(runs: dict[str, LanguageModelRun]) -> None:
    sequential, random = (runs[order].evaluate() for order in ("sequential", "random"))
    assert sequential.bits_per_byte_gained is not None
    assert random.bits_per_byte_gained is not None
    assert random.bits_per_byte_reset is not None
    assert sequential.bits_per_byte_gained > 0.3
    assert random.bits_per_byte_gained < 0.05, "a window without the letter cannot teach to remember it"
    assert sequential.bits_per_byte < random.bits_per_byte_reset - 0.1


def test_row_b5_reset_and_carried_are_what_they_say(runs: dict[str, LanguageModelRun], tmp_path: Path) -> None:
    """Against reading in one go, and window by window from nothing."""
    run, path = runs["random"], tmp_path / "short.txt"
    path.write_text(("a" + "." * (APART - 1)) * 66 + "a..")
    tokens = torch.tensor([run.tokenizer.end_id, *run.tokenizer.encode(path.read_text()), run.tokenizer.end_id])
    inputs, targets = tokens[:-1], tokens[1:]
    assert len(inputs) % WINDOW == 0
    with torch.no_grad():
        carried = F.cross_entropy(run.model(inputs[None])[0][0], targets, reduction="sum")
        reset = F.cross_entropy(run.model(inputs.view(-1, WINDOW))[0].flatten(0, 1), targets, reduction="sum")
    expected = {"carried": carried, "reset": reset, "both": carried, "as_trained": reset}
    for state, nats in expected.items():
        evaluation = run.with_settings([f"data.evaluate_state={state}"]).evaluate(path)
        assert evaluation.bits_per_byte == pytest.approx(float(nats) / math.log(2) / evaluation.bytes, rel=1e-5)
        if state == "both":
            assert evaluation.bits_per_byte_reset == pytest.approx(float(reset) / math.log(2) / evaluation.bytes, 1e-5)
        else:
            assert evaluation.bits_per_byte_reset is None


def test_row_b5_the_study_differs_in_the_order_alone() -> None:
    study = load_study("batches")
    specs = {entry.name: spec_of(study, entry).model_dump() for entry in study.entry}
    for name in [name for name in specs if name.endswith(", random")]:
        random, sequential = specs[name], specs[name.replace("random", "sequential")]
        assert [one["data"].pop("order") for one in (random, sequential)] == ["random", "sequential"]
        assert random == sequential
    assert set(study.also) == {"bits_per_byte_reset", "bits_per_byte_gained"}

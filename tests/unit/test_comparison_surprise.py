"""The surprise that a report shows is the one that was evaluated: within the windows a model has learned from."""

import math
from pathlib import Path

import pytest
import torch

from statewise import load
from statewise.decoding import Sampling
from statewise.tasks import LanguageModelRun, train
from statewise.tasks.language_model import fresh_window
from statewise.tasks.language_model.sample import generated_pieces, text_pieces
from statewise.training.progress import Silent

TEXT = "abc, abd. " * 60


@pytest.mark.parametrize("order", ["random", "sequential"])
def test_windows_are_those_of_the_training(order: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    settings = {"data.order": order, "model.width": 8, "train.steps": 2, "train.batch": 2, "train.truncation": 5}
    made = train("elman", settings=settings, data=tmp_path / "text.txt", out=tmp_path / "run", display=Silent())
    run = load(made.path, device="cpu")
    assert isinstance(run, LanguageModelRun)
    ids = [run.tokenizer.end_id, *map(int, run.tokenizer.encode(TEXT[:12]))]
    expected = []
    for place in range(12):
        begin = place - place % 5 if order == "random" else 0
        logits_BTV, _ = run.model(torch.tensor([ids[begin : place + 1]]))
        expected.append(-float(logits_BTV[0, -1].detach().log_softmax(-1)[ids[place + 1]]))
    found = text_pieces(
        run.model, run.tokenizer, TEXT[:12], begin_id=run.begin_id, window=fresh_window(run.spec), backwards=False
    )
    assert "".join(piece for piece, _ in found) == TEXT[:12]
    assert all(math.isclose(a, b, rel_tol=1e-4) for (_, a), b in zip(found, expected, strict=True))


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_a_sample_costs_what_it_cost_to_write(direction: str, tmp_path: Path) -> None:
    """Step by step, in the order it was written; and the text is what `generate` gives."""
    (tmp_path / "text.txt").write_text(TEXT)
    settings = {"data.direction": direction, "model.width": 8, "train.steps": 2, "train.batch": 2}
    made = train("gru", settings=settings, data=tmp_path / "text.txt", out=tmp_path / "run", display=Silent())
    run = load(made.path, device="cpu")
    assert isinstance(run, LanguageModelRun)
    ids = run.write("abc", tokens=200, sampling=Sampling(seed=0))
    found = generated_pieces(
        run.model, run.tokenizer, "abc", ids, begin_id=run.begin_id, backwards=direction == "reverse"
    )
    assert "".join(piece for piece, _ in found) == run.generate("abc", tokens=200, sampling=Sampling(seed=0))
    assert found
    at = run.begin("abc")
    state, token_B = at.state, at.token_B
    expected = []
    for token in ids:
        logits_BV, state = run.model.step(token_B, state)
        expected.append(-float(logits_BV[0].detach().log_softmax(-1)[token]))
        token_B = torch.tensor([token])
    costs = [nats for _, nats in found]
    assert costs == pytest.approx(expected if direction == "forward" else expected[::-1], rel=1e-4)

"""Whoever learned from windows in random order is judged by windows that begin without memory."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from statewise.data import Split
from statewise.models import build
from statewise.specs import parse_spec
from statewise.tasks.language_model import fresh_window, measure

TOKENS = np.random.default_rng(0).integers(1, 9, size=301).astype(np.uint16)


def split() -> Split:
    return Split(TOKENS, bytes=len(TOKENS), unknown=0)


@pytest.mark.parametrize("kind", ["gru", "transformer"])
@pytest.mark.parametrize("window", [1, 7, 50])
def test_every_token_counts_once_and_every_window_begins_afresh(kind: str, window: int) -> None:
    model = build(kind, vocab=9, width=8).double().eval()
    nats, count = measure(model, split(), end_id=0, begin_id=0, lanes=1, fresh=window)
    assert count == 300
    assert nats == pytest.approx(by_hand(model, window), rel=1e-6)


@torch.no_grad()
def by_hand(model: torch.nn.Module, window: int) -> float:
    """Lane by lane, window by window."""
    lanes = max(1, min(max(1, 256 // window), 300 // window))
    borders = [n * 300 // lanes for n in range(lanes + 1)]
    tokens = torch.from_numpy(TOKENS.astype(np.int64))
    total = 0.0
    for first, last in itertools.pairwise(borders):
        for begin in range(first, last, window):
            end = min(begin + window, last)
            logits, _ = model(tokens[None, begin:end])
            total += float(F.cross_entropy(logits[0].float(), tokens[begin + 1 : end + 1], reduction="sum"))
    return total


def test_the_order_of_training_decides() -> None:
    assert fresh_window(parse_spec({"data": {"order": "random"}, "train": {"truncation": 32}})) == 32
    assert fresh_window(parse_spec({"data": {"order": "sequential"}})) is None

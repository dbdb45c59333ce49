"""A Markov model on a Markov source: it reaches the entropy when its order is the source's, and below it cannot."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from statewise.models import build

VOCAB, ORDER = 4, 2


def source(count: int, *, seed: int) -> tuple[np.ndarray, float]:
    """A chain of order 2, and how surprising it was to one who knows it: nats a symbol."""
    given = np.random.default_rng(7).dirichlet(np.full(VOCAB, 0.4), size=(VOCAB, VOCAB))
    generator = np.random.default_rng(seed)
    cumulative = given.cumsum(-1)
    symbols, nats = [0, 1], 0.0
    for draw in generator.random(count):
        before = symbols[-2], symbols[-1]
        symbol = min(int(np.searchsorted(cumulative[before], draw)), VOCAB - 1)
        nats -= math.log(given[(*before, symbol)])
        symbols.append(symbol)
    return np.array(symbols), nats / count


def reached(order: int, smoothing: str) -> float:
    model = build("markov", vocab=VOCAB, order=order, smoothing=smoothing)
    model.count(source(40_000, seed=1)[0])
    tokens = torch.from_numpy(source(20_000, seed=2)[0])
    logits, _ = model(tokens[None, :-1])
    return float(F.cross_entropy(logits[0, 1:], tokens[2:]))


@pytest.mark.parametrize("smoothing", ["kneser-ney", "modified", "add-k"])
def test_the_entropy_of_the_source_is_reached(smoothing: str) -> None:
    _, entropy = source(20_000, seed=2)
    assert abs(reached(ORDER, smoothing) - entropy) < 0.005
    assert reached(ORDER - 1, smoothing) > entropy + 0.2, "one symbol does not tell enough"
    assert reached(ORDER + 2, smoothing) < entropy + 0.02, "knowing more than there is to know costs little"

"""Machines to try things on without training them first."""

from typing import Any

import numpy as np

from statewise.models.build import build
from statewise.models.token_machine import CountingMachine, TokenMachine
from statewise.specs import ModelSpec


def build_sample(spec: ModelSpec, *, vocab: int, seed: int = 0, tokens: int = 400) -> TokenMachine[Any]:
    """`build`, and one that learns by counting has counted a random text: before that it knows nothing."""
    model = build(spec, vocab=vocab, seed=seed)
    if isinstance(model, CountingMachine):
        model.count(np.random.default_rng(seed).integers(vocab, size=tokens), end_id=0)
    return model

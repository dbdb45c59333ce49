"""Machines to try things on without training them first."""

from typing import Any

import numpy as np

from statewise.models.build import build
from statewise.models.build_seq2seq import build_seq2seq
from statewise.models.token_machine import CountingMachine, TokenMachine
from statewise.specs import ModelSpec, Seq2SeqSpec


def build_sample(spec: ModelSpec | Seq2SeqSpec, *, vocab: int, seed: int = 0, tokens: int = 400) -> TokenMachine[Any]:
    """Any model, and one that learns by counting has counted a random text: before that it knows nothing."""
    if isinstance(spec, Seq2SeqSpec):
        return build_seq2seq(spec, source_vocab=vocab, target_vocab=vocab, seed=seed)
    model = build(spec, vocab=vocab, seed=seed)
    if isinstance(model, CountingMachine):
        model.count(np.random.default_rng(seed).integers(vocab, size=tokens), end_id=0)
    return model

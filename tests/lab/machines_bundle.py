"""Small untrained models as the data of a page."""

from typing import Any

import numpy as np

from statewise.data import Tokenizer
from statewise.lab.bundle import machine_record, tokenizer_record
from statewise.models import Markov, build
from statewise.specs import ElmanSpec, LSTMSpec, MarkovSpec, ModelSpec, TransformerSpec

TEXT = "`it is a cat,' she said, and `so is he.'"
HOSTILE = "<img src=x onerror=alert(1)>"
SPECS: dict[str, ModelSpec] = {
    "markov": MarkovSpec(order=2),
    "elman": ElmanSpec(width=8),
    "lstm": LSTMSpec(width=8),
    f"transformer {HOSTILE}": TransformerSpec(width=8, depth=1, heads=2),
}


def record(name: str, spec: ModelSpec, tokenizer: Tokenizer, computed: Any = machine_record) -> dict[str, Any]:
    machine = build(spec, vocab=tokenizer.vocab, seed=1).eval()
    if isinstance(machine, Markov):
        machine.count(np.concatenate([[tokenizer.end_id], tokenizer.encode(TEXT * 3)]), end_id=tokenizer.end_id)
    about = {"name": name, "kind": spec.kind, "family": "recurrent", "year": 1990, "parameters": 1, "labels": None}
    return {
        **about,
        "task": "language_model",
        "tokenizer": tokenizer_record(tokenizer),
        "first": tokenizer.end_id,
        "example": TEXT,
        **computed(machine, machine.init_state(1)),
    }


def machines_bundle() -> dict[str, Any]:
    """Language models, and a classifier for the question that is asked from further away."""
    tokenizer = Tokenizer.train("char", [TEXT, HOSTILE, "xyz"])
    models = [record(name, spec, tokenizer) for name, spec in SPECS.items()]
    words = Tokenizer.train("word", ["I grew up in Italy . I speak fluent"])
    asked = record("reader", ElmanSpec(width=6), words)
    asked |= {"task": "classification", "labels": [f"class {i}" for i in range(words.vocab)]}
    passages = [
        {"distance": distance, "text": "I grew up in Italy . " * distance + "I speak fluent", "label": "class 2"}
        for distance in (1, 2)
    ]
    extra = {"ask": {"passages": passages, "accuracy": {"reader": {1: 0.5, 2: 0.25}}}}
    return {"version": 1, "models": [*models, asked], "extra": extra}

"""A classifier of trees as a graph: one composition, with which the runtime goes from the words to a root; or a reader.

N nodes, T time, I width of a word vector.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from statewise.core import leaves, map_state
from statewise.data import Labels, Tokenizer
from statewise.models import Classifier, NodeClassifier, SpanClassifier, TreeClassifier, longest_context
from statewise.specs import TreeSpec
from statewise.tasks.portable import Axes, Logits, Portable, Whole, ragged_tokens


class _Compose(nn.Module):
    """The words of some nodes and the states of their children, to logits and states."""

    def __init__(self, model: TreeClassifier | SpanClassifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, word_N: Tensor, *children: Tensor) -> tuple[Tensor, ...]:
        below = iter(children)
        composer = self.model.encoder.composer
        x_NI = self.model.embedding(word_N.clamp(min=0)).masked_fill((word_N < 0)[:, None], 0.0)
        state = composer(x_NI, map_state(lambda _: next(below), composer.absent()))
        return self.model.head(composer.shown(state)), *(leaf for _, leaf in leaves(state))


def portable(model: NodeClassifier, spec: TreeSpec, classes: Labels, tokenizer: Tokenizer) -> Portable:
    data = spec.read_data
    settings: dict[str, Any] = {
        "labels": classes.names,
        "nodes": spec.objective.nodes,
        "unary": data.unary,
        "binarise": data.binarise,
        "context": longest_context(model),
    }
    if isinstance(model, Classifier):
        settings["shape"] = "read"
        whole = _reading(model, tokenizer.vocab)
    else:
        composer = model.encoder.composer
        settings["shape"] = "given" if isinstance(model, TreeClassifier) else model.encoder.shape
        settings["arity"], settings["width"] = composer.arity, composer.output_width
        settings["state"] = [name for name, _ in leaves(composer.absent())]
        whole = _composition(model, tokenizer.vocab)
    return Portable(settings, {"tokenizer.json": tokenizer.to_json()}, whole=whole)


def _composition(model: TreeClassifier | SpanClassifier, vocab: int) -> Whole:
    composer = model.encoder.composer
    names = [name for name, _ in leaves(composer.absent())]

    def sample(rows: int, time: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        word_N = torch.randint(-1, vocab, (rows,), generator=generator)
        shape = (rows, composer.arity or time, composer.output_width)
        return word_N, *(torch.randn(shape, generator=generator) for _ in names)

    below: Axes = {0: "nodes"} if composer.arity else {0: "nodes", 1: "children"}
    return Whole(
        "compose",
        _Compose(model),
        inputs=[("words", {0: "nodes"}), *((name, below) for name in names)],
        outputs=[("logits", {0: "nodes"}), *((f"after.{name}", {0: "nodes"}) for name in names)],
        sample=sample,
    )


def _reading(model: Classifier, vocab: int) -> Whole:
    return Whole(
        "classify",
        Logits(model),
        inputs=[("words", {0: "spans", 1: "time"}), ("lengths", {0: "spans"})],
        outputs=[("logits", {0: "spans"})],
        sample=partial(ragged_tokens, vocab),
        longest=longest_context(model),
    )

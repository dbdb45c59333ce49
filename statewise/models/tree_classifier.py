"""A class for every node: along given trees, or of spans that are read as sentences.

N nodes, B spans, T time, K classes, I width of a word vector, D width of a node.
"""

from typing import Any, assert_never, final

import torch
from torch import Tensor, nn

from statewise.core import Composer
from statewise.encoders import ChildSumTreeLSTM, Composition, Forest, NaryTreeLSTM, TreeEncoder
from statewise.layers import Dropout, Embedding
from statewise.models.classifier import Classifier, build_sequence_classifier
from statewise.models.head import CategoricalHead
from statewise.specs import (
    AnyComposerSpec,
    ChildSumSpec,
    ComposerSpec,
    CompositionSpec,
    NarySpec,
    ReaderSpec,
    TreeModelSpec,
    labelling_scale,
)


class _OverTrees(nn.Module):
    """Word vectors, composed along trees, and a head."""

    def __init__(
        self, *, embedding: Embedding, input_dropout: Dropout, encoder: TreeEncoder, dropout: Dropout, head: nn.Module
    ) -> None:
        super().__init__()
        self.embedding, self.input_dropout = embedding, input_dropout
        self.encoder, self.dropout, self.head = encoder, dropout, head


@final
class TreeClassifier(_OverTrees):
    """`(word_N, forest)` to logits `[N, K]`: every node is composed from its children, and the head looks at each."""

    def forward(self, word_N: Tensor, forest: Forest) -> Tensor:
        """A negative number marks a node without a word."""
        there_M = (word_N >= 0).nonzero()[:, 0]
        x_MI = self.input_dropout(self.embedding(word_N[there_M]))
        x_NI = x_MI.new_zeros(len(word_N), x_MI.shape[1]).index_copy(0, there_M, x_MI)
        logits_NK: Tensor = self.head(self.dropout(self.encoder.nodes(x_NI, forest)))
        return logits_NK


@final
class SpanClassifier(_OverTrees):
    """`(word_BT, lengths_B)` to logits `[B, K]`: the root of a tree that is built over the words."""

    def forward(self, word_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        x_BTI = self.input_dropout(self.embedding(word_BT))
        logits_BK: Tensor = self.head(self.dropout(self.encoder(x_BTI, lengths_B)))
        return logits_BK


NodeClassifier = TreeClassifier | SpanClassifier | Classifier


def build_node_classifier(
    model: TreeModelSpec, reader: ReaderSpec, *, num_classes: int, vocab: int, seed: int = 0
) -> NodeClassifier:
    """The first where the spec follows given trees; the others read spans."""
    if not isinstance(model, ComposerSpec):
        return build_sequence_classifier(model, reader, num_classes=num_classes, vocab=vocab, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    width = model.embedding_width
    embedding = Embedding(
        vocab,
        width,
        row_dropout=model.embedding_dropout,
        scale=model.embedding_scale or labelling_scale(vocab),
        generator=generator,
    )
    composer = build_composer(model, generator=generator)
    head = CategoricalHead(model.width, num_classes, generator=generator)
    kernel = model.kernel
    parts: dict[str, Any] = {
        "embedding": embedding,
        "input_dropout": Dropout(model.input_dropout),
        "dropout": Dropout(model.dropout),
        "head": head,
    }
    match model.shape:
        case "given":
            return TreeClassifier(encoder=TreeEncoder(composer, kernel=kernel), **parts)
        case "balanced" | "chain":
            return SpanClassifier(encoder=TreeEncoder(composer, shape=model.shape, kernel=kernel), **parts)
        case _:
            assert_never(model.shape)


def build_composer(spec: AnyComposerSpec, *, generator: torch.Generator | None = None) -> Composer[Any]:
    options: dict[str, Any] = {"input_width": spec.embedding_width, "init": spec.init, "generator": generator}
    match spec:
        case CompositionSpec():
            return Composition(spec.width, arity=spec.arity, **options)
        case ChildSumSpec():
            return ChildSumTreeLSTM(spec.width, forget_bias=spec.forget_bias, **options)
        case NarySpec():
            return NaryTreeLSTM(spec.width, arity=spec.arity, forget_bias=spec.forget_bias, **options)
        case _:
            assert_never(spec)

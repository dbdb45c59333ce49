"""A whole sequence to one class.

B batch, S time, C width of a reader's summary, K classes.
"""

from typing import Any, final

import torch
from torch import Tensor, nn

from statewise.layers import Embedding, make_linear
from statewise.models.build_reader import build_reader
from statewise.models.grid_classifier import GridClassifier, build_grid_classifier
from statewise.models.head import CategoricalHead
from statewise.models.reader import Reader
from statewise.specs import ClassifierModelSpec, GridSpec, MixerSpec, ReaderSpec


@final
class Classifier(nn.Module):
    """`(source, lengths)` to logits `[B, K]`: a reader's summary, and a head on it."""

    def __init__(self, *, reader: Reader, head: CategoricalHead) -> None:
        super().__init__()
        self.reader = reader
        self.head = head

    def forward(self, source: Any, lengths_B: Tensor | None = None) -> Tensor:
        return self.head(self.reader(source, lengths_B).summary_BC)


AnyClassifier = Classifier | GridClassifier


def build_classifier(
    model: ClassifierModelSpec,
    reader: ReaderSpec,
    *,
    num_classes: int,
    vocab: int | None = None,
    values: int | None = None,
    seed: int = 0,
) -> AnyClassifier:
    """A classifier of tokens (`vocab` of them) or of real values (`values` at each time step or in each cell)."""
    if isinstance(model, GridSpec):
        assert vocab is None
        assert values is not None
        return build_grid_classifier(model, channels=values, num_classes=num_classes, seed=seed)
    return build_sequence_classifier(model, reader, num_classes=num_classes, vocab=vocab, values=values, seed=seed)


def build_sequence_classifier(
    model: MixerSpec,
    reader: ReaderSpec,
    *,
    num_classes: int,
    vocab: int | None = None,
    values: int | None = None,
    seed: int = 0,
) -> Classifier:
    """The same by any mixer, which reads a sequence."""
    assert (vocab is None) != (values is None)
    generator = torch.Generator().manual_seed(seed)
    width = model.embedding_width
    entry: nn.Module
    if vocab is not None:
        entry = Embedding(
            vocab, width, row_dropout=model.embedding_dropout, scale=model.labelling_scale(vocab), generator=generator
        )
    else:
        assert values is not None
        entry = make_linear(values, width, generator=generator)
    read = build_reader(
        model,
        entry=entry,
        entry_width=width,
        **dict(reader),
        generator=generator,
    )
    return Classifier(reader=read, head=CategoricalHead(read.width, num_classes, generator=generator))

"""A tag for every word: words as vectors, a reader over them, and what makes tags of its outputs.

B batch, T time, U different words of a batch, E width of a word, C width of a reader's outputs, K tags.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, assert_never, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Described, onto, past_end
from statewise.kernels import wide
from statewise.layers import Embedding
from statewise.models.build_reader import build_reader
from statewise.models.crf import CRF, forbidden_in_bio
from statewise.models.head import CategoricalHead
from statewise.models.reader import Reader
from statewise.specs import (
    CategoricalSpec,
    CRFSpec,
    MixerSpec,
    ReaderSpec,
    TagObjectiveSpec,
    WordsSpec,
    labelling_scale,
)


class Words(NamedTuple):
    """A batch of words. Each different one is spelled once, and `slot_BT` says which it is."""

    word_BT: Tensor
    slot_BT: Tensor
    char_UC: Tensor
    length_U: Tensor

    def rows(self, some: slice) -> "Words":
        return self._replace(word_BT=self.word_BT[some], slot_BT=self.slot_BT[some])

    def to(self, device: torch.device) -> "Words":
        return Words(*(onto(device, part) for part in self))


@final
class WordEntry(Described):
    """`[B, T, E]`: a word's own vector, then both ends of a reading of its characters (Ling et al. 2015).

    In training some words are taken for the unknown one, whose vector nothing else would teach.
    """

    def __init__(self, *, words: Embedding, unknown_id: int, word_dropout: float, spelling: Reader | None) -> None:
        super().__init__()
        self.words = words
        self.unknown_id = unknown_id
        self.word_dropout = word_dropout
        self.spelling = spelling
        self.width = words.weight.shape[1] + (0 if spelling is None else spelling.width)

    def forward(self, source: Words) -> Tensor:
        word_BT = source.word_BT
        if self.training and self.word_dropout:
            gone_BT = torch.rand(word_BT.shape, device=word_BT.device) < self.word_dropout
            word_BT = word_BT.masked_fill(gone_BT, self.unknown_id)
        x_BTE: Tensor = self.words(word_BT)
        if self.spelling is None:
            return x_BTE
        spelled_UE = self.spelling(source.char_UC, source.length_U).summary_BC
        return torch.cat([x_BTE, F.embedding(source.slot_BT, spelled_UE)], dim=-1)


def build_word_entry(
    spec: WordsSpec,
    *,
    width: int,
    vocab: int,
    unknown_id: int,
    num_characters: int,
    row_dropout: float = 0.0,
    scale: float | None = None,
    generator: torch.Generator | None = None,
) -> WordEntry:
    """`width` is that of a word's own vector, where the spec names none."""
    width = spec.width or width
    words = Embedding(vocab, width, row_dropout=row_dropout, scale=scale or labelling_scale(vocab), generator=generator)
    spelling = None
    if spec.characters:
        spelling = build_reader(
            spec.speller(),
            entry=Embedding(
                num_characters,
                spec.character_width,
                scale=scale or labelling_scale(num_characters),
                generator=generator,
            ),
            entry_width=spec.character_width,
            bidirectional=True,
            generator=generator,
        )
    return WordEntry(words=words, unknown_id=unknown_id, word_dropout=spec.word_dropout, spelling=spelling)


_BIO = re.compile(r"O|[BI]-.+")


class Tags(NamedTuple):
    """The best tags, and the probability of every tag at every position; both 0 past a row's end."""

    best_BT: Tensor
    p_BTK: Tensor


class TagHead(Described, ABC):
    """From features to tags: what the loss is, and what is most likely."""

    scores: CategoricalHead

    @abstractmethod
    def loss(self, y_BTC: Tensor, tags_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """Nats, summed over all positions of all rows."""

    @abstractmethod
    def tags(self, y_BTC: Tensor, lengths_B: Tensor) -> Tags: ...


@final
class SeparateTags(TagHead):
    """A softmax at each position, which knows nothing of its neighbours' tags."""

    weight_K: Tensor

    def __init__(self, scores: CategoricalHead, *, smoothing: float, weight_K: Tensor) -> None:
        super().__init__()
        self.scores = scores
        self.smoothing = smoothing
        # Not in the state dict: only training needs it, and it follows from the data.
        self.register_buffer("weight_K", weight_K, persistent=False)

    def loss(self, y_BTC: Tensor, tags_BT: Tensor, lengths_B: Tensor) -> Tensor:
        (logits_BTK,) = wide(self.scores(y_BTC))
        inside_BT = torch.arange(tags_BT.shape[1], device=tags_BT.device) < lengths_B[:, None]
        target_BT = tags_BT.masked_fill(~inside_BT, -100)  # cross_entropy passes over it
        return F.cross_entropy(
            logits_BTK.flatten(0, 1),
            target_BT.flatten(),
            weight=self.weight_K.to(logits_BTK),
            label_smoothing=self.smoothing,
            reduction="sum",
        )

    def tags(self, y_BTC: Tensor, lengths_B: Tensor) -> Tags:
        (logits_BTK,) = wide(self.scores(y_BTC))
        p_BTK = past_end(logits_BTK.softmax(-1), lengths_B)
        return Tags(p_BTK.argmax(-1), p_BTK)


@final
class ChainedTags(TagHead):
    """A conditional random field: the best tags are the best path, the probabilities are marginals over all paths."""

    def __init__(self, scores: CategoricalHead, crf: CRF) -> None:
        super().__init__()
        self.scores = scores
        self.crf = crf

    def loss(self, y_BTC: Tensor, tags_BT: Tensor, lengths_B: Tensor) -> Tensor:
        return self.crf.nats_B(self.scores(y_BTC), tags_BT, lengths_B).sum()

    def tags(self, y_BTC: Tensor, lengths_B: Tensor) -> Tags:
        emissions_BTK = self.scores(y_BTC)
        best_BT, _ = self.crf.decode(emissions_BTK, lengths_B)
        return Tags(best_BT, self.crf.marginals(emissions_BTK, lengths_B))


@final
class Tagger(nn.Module):
    def __init__(self, *, reader: Reader, head: TagHead) -> None:
        super().__init__()
        self.reader = reader
        self.head = head

    def forward(self, words: Words, lengths_B: Tensor) -> Tags:
        return self.head.tags(self.reader(words, lengths_B).outputs_BSC, lengths_B)

    def loss(self, words: Words, lengths_B: Tensor, tags_BT: Tensor) -> Tensor:
        return self.head.loss(self.reader(words, lengths_B).outputs_BSC, tags_BT, lengths_B)

    def __call__(self, words: Words, lengths_B: Tensor) -> Tags:
        tags: Tags = super().__call__(words, lengths_B)
        return tags


def is_bio(names: Sequence[str]) -> bool:
    """Whether tags mark spans: all of them O, B-… or I-…, and not O alone."""
    return set(names) != {"O"} and all(_BIO.fullmatch(name) for name in names)


def is_constrained(objective: TagObjectiveSpec, names: Sequence[str]) -> bool:
    return isinstance(objective, CRFSpec) and objective.constraint == "auto" and is_bio(names)


def build_tagger(
    model: MixerSpec,
    reader: ReaderSpec,
    words: WordsSpec,
    objective: TagObjectiveSpec,
    *,
    names: Sequence[str],
    vocab: int,
    unknown_id: int,
    num_characters: int,
    weight_K: Tensor | None = None,
    seed: int = 0,
) -> Tagger:
    """A tagger with the tags `names`; `weight_K` is how much each counts in training."""
    generator = torch.Generator().manual_seed(seed)
    entry = build_word_entry(
        words,
        width=model.embedding_width,
        vocab=vocab,
        unknown_id=unknown_id,
        num_characters=num_characters,
        row_dropout=model.embedding_dropout,
        scale=model.embedding_scale,
        generator=generator,
    )
    read = build_reader(
        model, entry=entry, entry_width=entry.width, bidirectional=reader.bidirectional, generator=generator
    )
    scores = CategoricalHead(read.width, len(names), generator=generator)
    match objective:
        case CategoricalSpec():
            weight_K = torch.ones(len(names)) if weight_K is None else weight_K
            return Tagger(reader=read, head=SeparateTags(scores, smoothing=objective.smoothing, weight_K=weight_K))
        case CRFSpec():
            with torch.device("cpu"):  # the rules are looked at, also where a model is only measured ("meta")
                forbidden = forbidden_in_bio(names) if is_constrained(objective, names) else None
            crf = CRF(len(names), forbidden=forbidden, generator=generator)
            return Tagger(reader=read, head=ChainedTags(scores, crf))
        case _:
            assert_never(objective)

"""Words as vectors: what a word is, and how it is spelled, side by side.

B batch, T time, U different words of the batch, C characters of the longest, E width.
"""

from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Described, onto
from statewise.layers import Embedding
from statewise.models.build_reader import build_reader
from statewise.models.reader import Reader
from statewise.specs import WordsSpec, labelling_scale


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

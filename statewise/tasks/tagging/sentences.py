"""Sentences as a tagger reads them: ids of words, and how each different word is spelled.

All words of all sentences stand in one line; a batch is cut out of it without a loop over its rows.
N words, F different ones, P parts of sentences, B of them in a batch, T words of the longest, U different words of
a batch, C characters of the longest.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import onto
from statewise.data import Tagged, Tokenizer
from statewise.models import Words

Index = NDArray[np.int64]


class Batch(NamedTuple):
    words: Words
    lengths_B: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.words.to(device), onto(device, self.lengths_B))


class Sentences(NamedTuple):
    """`form_N` is the number of each word among the different ones; a part is `form_N[begin : begin + length]`."""

    form_N: Index
    begin_P: Index
    length_P: Index
    word_F: Index  # in the vocabulary
    char_FC: Index
    spelled_F: Index  # characters of each

    def __len__(self) -> int:
        return len(self.length_P)

    def places(self, part_B: Index) -> tuple[Index, NDArray[np.bool_]]:
        """Where in the line each word of these parts stands, `[B, T]`, and which of them are there at all."""
        length_B = self.length_P[part_B]
        at_T = np.arange(length_B.max(initial=0))
        inside_BT = at_T < length_B[:, None]
        return np.where(inside_BT, self.begin_P[part_B][:, None] + at_T, 0), inside_BT

    def batch(self, part_B: Index) -> Batch:
        place_BT, inside_BT = self.places(part_B)
        # A place that is past a row's end holds the row's first word: no different word is spelled for its sake.
        place_BT = np.where(inside_BT, place_BT, self.begin_P[part_B][:, None])
        form_BT = self.form_N[place_BT]
        different_U, slot_N = np.unique(form_BT, return_inverse=True)
        spelled_U = self.spelled_F[different_U]
        char_UC = self.char_FC[different_U, : spelled_U.max(initial=1)]
        words = (self.word_F[form_BT], slot_N.reshape(form_BT.shape), char_UC, spelled_U)
        return Batch(Words(*map(torch.from_numpy, words)), torch.from_numpy(self.length_P[part_B]))


class Encoding(NamedTuple):
    """From words to ids, learned from training sentences alone; kept with the weights."""

    words: Tokenizer
    characters: Tokenizer
    longest: int  # characters of a word

    @property
    def unknown_id(self) -> int:
        assert self.words.unknown_id is not None
        return self.words.unknown_id

    def encode(self, sentences: Sequence[Tagged], parts: tuple[Index, Index]) -> Sentences:
        numbers: dict[str, int] = {}
        form_N = np.array(
            [numbers.setdefault(word, len(numbers)) for sentence in sentences for word in sentence.words],
            dtype=np.int64,
        )
        forms = list(numbers)
        spelled = [self._ends(ids) for ids in self.characters.encode_many(forms)]
        spelled_F = np.array([len(ids) for ids in spelled], dtype=np.int64)
        char_FC = np.zeros((len(forms), spelled_F.max(initial=1)), dtype=np.int64)
        char_FC[np.arange(char_FC.shape[1]) < spelled_F[:, None]] = np.concatenate([np.zeros(0, np.int64), *spelled])
        return Sentences(form_N, *parts, self.words.encode_words(forms), char_FC, spelled_F)

    def _ends(self, ids: Index) -> Index:
        """Of a long word its beginning and its end, where affixes are."""
        if len(ids) <= self.longest:
            return ids
        return np.concatenate([ids[: self.longest // 2], ids[len(ids) - (self.longest - self.longest // 2) :]])


def in_parts(lengths: Sequence[int], longest: int) -> tuple[Index, Index]:
    """Where the parts of sentences begin, and how long they are: as few and as equal as `longest` allows."""
    length_S = np.array(lengths, dtype=np.int64)
    count_S = -(-length_S // longest)
    sentence_P = np.repeat(np.arange(len(length_S)), count_S)
    number_P = np.arange(len(sentence_P)) - np.repeat(np.cumsum(count_S) - count_S, count_S)
    count_P, of_P = count_S[sentence_P], length_S[sentence_P]
    begin_P, end_P = of_P * number_P // count_P, of_P * (number_P + 1) // count_P
    first_S = np.cumsum(length_S) - length_S
    return first_S[sentence_P] + begin_P, end_P - begin_P

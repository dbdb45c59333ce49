"""Words as the characters that spell them, for models that look inside words they never saw.

B sentences, T words of the longest, C characters of the longest word.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from statewise.data.tokenizer import Tokenizer


class Spelling(NamedTuple):
    """`lengths_BT` is 0 where a sentence has no word; `char_BTC` is 0 where a word has no character."""

    char_BTC: Tensor
    lengths_BT: Tensor


def spell(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, *, longest: int = 32) -> Spelling:
    """The characters of every word by `tokenizer` (kind char or byte), of long words the first `longest`."""
    different = sorted({word for sentence in sentences for word in sentence})
    spelled = {word: ids[:longest] for word, ids in zip(different, tokenizer.encode_many(different))}
    time = max((len(sentence) for sentence in sentences), default=0)
    widest = max((len(ids) for ids in spelled.values()), default=0)
    char_BTC = np.zeros((len(sentences), time, widest), dtype=np.int64)
    lengths_BT = np.zeros((len(sentences), time), dtype=np.int64)
    for row, sentence in enumerate(sentences):
        for place, word in enumerate(sentence):
            ids = spelled[word]
            char_BTC[row, place, : len(ids)] = ids
            lengths_BT[row, place] = len(ids)
    return Spelling(torch.from_numpy(char_BTC), torch.from_numpy(lengths_BT))

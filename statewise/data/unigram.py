"""The trivial baseline: how well do letter (or word) frequencies alone predict?"""

import numpy as np
from numpy.typing import NDArray

from statewise.data.stream import release

_CHUNK = 1 << 22


def unigram_nats(train_counts_V: NDArray[np.int64], evaluated_tokens: NDArray[np.unsignedinteger]) -> float:
    """Mean of -log p(token) over the evaluated stream's predictions, all tokens but the first.

    p = (count in train + 1) / (predictions in train + vocab), the add-one estimate of Laplace.
    """
    vocab = len(train_counts_V)
    evaluated_V = token_counts(evaluated_tokens, vocab)
    nats_V = -np.log((train_counts_V + 1) / (train_counts_V.sum() + vocab))
    return float(evaluated_V @ nats_V / evaluated_V.sum())


def token_counts(tokens: NDArray[np.unsignedinteger], vocab: int) -> NDArray[np.int64]:
    """How often each id is predicted; in chunks, since `bincount` widens what it reads."""
    counts_V = np.zeros(vocab, dtype=np.int64)
    for start in range(1, len(tokens), _CHUNK):
        counts_V += np.bincount(tokens[start : start + _CHUNK], minlength=vocab)
        release(tokens)
    return counts_V

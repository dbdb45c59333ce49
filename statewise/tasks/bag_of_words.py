"""Logistic regression on which words a text holds: what a text classifier that reads order should beat.

N texts, V words, K classes, L columns of weights.
"""

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BAG_OF_WORDS = "bag-of-words logistic regression"
_WORD = re.compile(r"\w+")
_WORDS = 20_000  # the most frequent of training
_TEXTS = 50_000  # of more, so many are learned from, evenly spread
_STEPS = 200


class BagOfWords(NamedTuple):
    """`softmax(x W + b)` of x, 1 for every word of the text and 0 for all others; of two classes, a sigmoid."""

    words: Mapping[str, int]
    weight_VL: Tensor
    bias_L: Tensor

    def log_probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Of each class `[N, K]`. Words that training did not show are ignored."""
        score_NL = _rows(self.words, texts) @ self.weight_VL + self.bias_L
        return _log_probabilities(score_NL).numpy()


def fit_bag_of_words(
    texts: Sequence[str], label_N: NDArray[np.int64], *, classes: int, tolerance: float = 1e-4
) -> BagOfWords:
    """Minimise `mean nats + ||W||² / 2N` by L-BFGS, from 0: scikit-learn's LogisticRegression at its defaults."""
    assert classes > 1, "one class needs no words"
    some = np.unique(np.linspace(0, len(texts) - 1, min(_TEXTS, len(texts))).astype(np.int64))
    texts, target_N = [texts[i] for i in some], torch.from_numpy(label_N[some])
    counts = Counter(word for text in texts for word in _words_of(text))
    words = {word: v for v, (word, _) in enumerate(counts.most_common(_WORDS))}
    x_NV = _rows(words, texts)
    x_VN = x_NV.t().to_sparse_csr()
    columns = 1 if classes == 2 else classes
    weight_VL, bias_L = (torch.zeros(*size, columns, dtype=torch.float64) for size in ([len(words)], []))
    optimizer = torch.optim.LBFGS(
        [weight_VL, bias_L],
        max_iter=_STEPS,
        history_size=10,
        tolerance_grad=tolerance,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )
    truth_NL = torch.nn.functional.one_hot(target_N, classes)[:, -columns:]

    def closure() -> Tensor:
        log_NK = _log_probabilities(x_NV @ weight_VL + bias_L)
        slope_NL = (log_NK[:, -columns:].exp() - truth_NL) / len(texts)
        weight_VL.grad = x_VN @ slope_NL + weight_VL / len(texts)
        bias_L.grad = slope_NL.sum(0)
        nats = -log_NK.gather(1, target_N[:, None]).mean()
        return nats + weight_VL.square().sum() / (2 * len(texts))

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return BagOfWords(words, weight_VL, bias_L)


def _words_of(text: str) -> Iterable[str]:
    """Each once, in the order of the text."""
    return dict.fromkeys(_WORD.findall(text.lower()))


def _rows(words: Mapping[str, int], texts: Sequence[str]) -> Tensor:
    """A sparse matrix `[N, V]` of zeros and ones."""
    ids_N = [sorted(words[word] for word in _words_of(text) if word in words) for text in texts]
    return _sparse(np.cumsum([0, *map(len, ids_N)]), np.array([v for row in ids_N for v in row], dtype=np.int64), words)


def _sparse(border_M: NDArray[np.int64], place: NDArray[np.int64], words: Mapping[str, int]) -> Tensor:
    size = (len(border_M) - 1, len(words))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(border_M),
            torch.from_numpy(place),
            torch.ones(len(place), dtype=torch.float64),
            size,
            check_invariants=True,
        )


def _log_probabilities(score_NL: Tensor) -> Tensor:
    if score_NL.shape[1] == 1:  # the first of two classes has the score 0
        score_NL = torch.cat([torch.zeros_like(score_NL), score_NL], dim=1)
    return score_NL.log_softmax(-1)

"""Surprisal of the truth, and calibration of probabilities."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from statewise.specs import UserError
from statewise.tasks.metric.score import Score


class SurpriseScores(NamedTuple):
    nats: Score
    bits: Score
    perplexity: Score  # 1 is perfect, the number of choices knows nothing


def surprise(total_nats: float, count: int, *, per: str) -> SurpriseScores:
    """Of a total over `count`. `per` says of what ("byte", "frame", "token of bpe-8k"): only equal units compare."""
    if count < 1:
        raise UserError(f"there is no {per} to measure")
    nats = total_nats / count
    perplexity = math.exp(nats) if nats < 700 else math.inf
    signature = f"per:{per}"
    return SurpriseScores(
        Score("nats", nats, False, signature, count),
        Score("bits", nats / math.log(2), False, signature, count),
        Score("perplexity", perplexity, False, signature, count),
    )


def calibration_error(confidence: ArrayLike, correct: Sequence[bool] | ArrayLike, *, bins: int = 15) -> Score:
    """`Σ share of bin · |mean confidence - share correct|` over bins of equal width (Naeini et al. 2015)."""
    confidence_N = np.asarray(confidence, dtype=np.float64)
    correct_N = np.asarray(correct, dtype=np.float64)
    if confidence_N.shape != correct_N.shape or confidence_N.ndim != 1 or not len(confidence_N):
        shapes = f"{list(confidence_N.shape)} and {list(correct_N.shape)}"
        raise UserError(f"confidence and correctness have shapes {shapes}, expected one number each an example")
    if bins < 1:
        raise UserError(f"bins = {bins} is not valid, expected 1 or more")
    if not ((confidence_N >= 0) & (confidence_N <= 1)).all():
        raise UserError("a confidence is not between 0 and 1", fix="give probabilities, not logits")
    bin_N = np.clip(np.ceil(confidence_N * bins).astype(np.int64) - 1, 0, bins - 1)
    gap_K = np.bincount(bin_N, weights=confidence_N - correct_N, minlength=bins)
    value = float(np.abs(gap_K).sum() / len(confidence_N))
    return Score("calibration error", value, False, f"bins:{bins}|width:equal", len(confidence_N))

"""Whether a model knows what it does not know: how often its guesses are right, by how sure it is of them.

N answers, C bins of confidence.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from statewise.display import share
from statewise.figures import Axis, Figure, Series

BINS = 10


class Bin(NamedTuple):
    """Predictions of about the same confidence: how often they were right."""

    confidence: float  # in the mean
    accuracy: float
    half: float  # of the 95 % interval of the accuracy
    tokens: int


class Tally:
    """Feed it guesses, then ask for `bins`."""

    def __init__(self) -> None:
        self._right_C, self._sure_C, self._count_C = torch.zeros(3, BINS, dtype=torch.float64)

    def add(self, sure_N: Tensor, right_N: Tensor) -> None:
        bin_N = (sure_N * BINS).long().clamp(max=BINS - 1)
        for total_C, value_N in ((self._right_C, right_N), (self._sure_C, sure_N), (self._count_C, None)):
            total_C.index_add_(0, bin_N, torch.ones_like(sure_N) if value_N is None else value_N)

    @property
    def accuracy(self) -> float:
        return float(self._right_C.sum() / self._count_C.sum())

    def bins(self) -> tuple[Bin, ...]:
        found = []
        for right, sure, count in zip(self._right_C.tolist(), self._sure_C.tolist(), self._count_C.tolist()):
            if count:
                part = right / count
                half = 1.96 * math.sqrt(max(part * (1 - part), 0.25 / count) / count)
                found.append(Bin(sure / count, part, half, int(count)))
        return tuple(found)

    def error(self) -> float:
        """The expected calibration error."""
        total = float(self._count_C.sum())
        return sum(one.tokens * abs(one.accuracy - one.confidence) for one in self.bins()) / total


def reliability(bins: Sequence[Bin], error: float, *, of: str) -> Figure:
    high = max(max(one.accuracy + one.half for one in bins), 1.0)
    side = "more" if sum(one.tokens * (one.confidence - one.accuracy) for one in bins) > 0 else "less"
    return Figure(
        "surprise-calibration",
        "Does it know what it does not know?",
        "line",
        Axis("probability of the first guess", limits=(0.0, 1.0)),
        Axis("share that was right", limits=(0.0, high)),
        (
            Series(
                "measured",
                tuple(one.confidence for one in bins),
                tuple(one.accuracy for one in bins),
                tuple(max(one.accuracy - one.half, 0.0) for one in bins),
                tuple(one.accuracy + one.half for one in bins),
            ),
            Series("perfectly calibrated", (0.0, 1.0), (0.0, 1.0)),
        ),
        reading=f"{of} by the probability of the model's first guess, and how often that guess was right; below the "
        "diagonal it is too sure of itself. The band is a 95 % interval.",
        finding=f"The expected calibration error is {share(error)}; in the mean it is {side} sure than right.",
    )

"""Surprisal of a text, calibration, use of context, and differences between two models.

T tokens, N answers, C confidence bins.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from statewise.display import Progress, plain, rough, share
from statewise.figures import Axis, Figure, Series, between, shared_ends, text_of
from statewise.tasks import Floats, TextSpecimens

BINS = 10


class Bin(NamedTuple):
    """Predictions of similar confidence: how often they were right."""

    confidence: float  # in the mean
    accuracy: float
    half: float  # of the 95 % interval of the accuracy
    tokens: int


class Tally:
    """Counts guesses by confidence."""

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
        bins = []
        for right, sure, count in zip(self._right_C.tolist(), self._sure_C.tolist(), self._count_C.tolist()):
            if count:
                part = right / count
                half = 1.96 * math.sqrt(max(part * (1 - part), 0.25 / count) / count)
                bins.append(Bin(sure / count, part, half, int(count)))
        return tuple(bins)

    def error(self) -> float:
        """The expected calibration error."""
        total = float(self._count_C.sum())
        return sum(bucket.tokens * abs(bucket.accuracy - bucket.confidence) for bucket in self.bins()) / total


def reliability(bins: Sequence[Bin], error: float, *, of: str) -> Figure:
    high = max(max(bucket.accuracy + bucket.half for bucket in bins), 1.0)
    side = (
        "overconfident"
        if sum(bucket.tokens * (bucket.confidence - bucket.accuracy) for bucket in bins) > 0
        else "underconfident"
    )
    return Figure(
        "surprise-calibration",
        "Calibration",
        "line",
        Axis("probability of the first guess", limits=(0.0, 1.0)),
        Axis("share that was right", limits=(0.0, high)),
        (
            Series.with_band(
                "measured", *zip(*((bucket.confidence, bucket.accuracy, bucket.half) for bucket in bins)), least=0.0
            ),
            Series("perfectly calibrated", (0.0, 1.0), (0.0, 1.0)),
        ),
        reading=f"{of} by the probability of the model's first guess, and how often that guess was right; below the "
        "diagonal the model is overconfident. The band is a 95 % interval.",
        finding=f"The expected calibration error is {share(error)}; in the mean the model is {side}.",
    )


_LN2 = math.log(2)


class Bucket(NamedTuple):
    """A mean over some tokens, with the half width of its 95 % interval."""

    low: int  # the first and the last position that belong to it
    high: int
    mean: float
    half: float
    tokens: int


class Surprise(NamedTuple):
    bits_T: Tensor  # of tokens 1 … T: the first is given
    by_position: tuple[Bucket, ...]
    bins: tuple[Bin, ...]
    error: float  # expected calibration error
    accuracy: float
    entropy: float  # mean entropy of the predictions, bits

    @property
    def mean(self) -> float:
        return float(self.bits_T.mean())


def measure(text: TextSpecimens, progress: Progress) -> Surprise:
    costs, entropies = [], 0.0
    by_power: dict[int, list[float]] = {}  # count, sum and sum of squares
    tally = Tally()
    for part in text.read(progress, what="reading for surprise"):
        bits_T = part.nats_T.double() / _LN2
        costs.append(bits_T.cpu())
        log_TV = part.logits_TV.log_softmax(-1)
        entropies -= float((log_TV.exp() * log_TV).sum(-1).double().sum()) / _LN2
        best = log_TV.max(-1)
        sure_T = best.values.exp().double().cpu()
        right_T = (best.indices == part.targets_T).double().cpu()
        tally.add(sure_T, right_T)
        power_T = torch.log2(part.position_T.cpu().double() + 1).long()
        for power in sorted(set(power_T.tolist())):
            some = bits_T.cpu()[power_T == power]
            known = by_power.setdefault(power, [0.0, 0.0, 0.0])
            for at, value in enumerate((len(some), float(some.sum()), float((some**2).sum()))):
                known[at] += value
    bits_T = torch.cat(costs)
    return Surprise(
        bits_T,
        tuple(_bucket(power, *known) for power, known in sorted(by_power.items())),
        tally.bins(),
        tally.error(),
        tally.accuracy,
        entropies / len(bits_T),
    )


def _bucket(power: int, count: float, total: float, squares: float) -> Bucket:
    """Positions 0, 1–2, 3–6, … : each bucket is twice as wide as the one before it."""
    mean = total / count
    spread = math.sqrt(max(squares / count - mean**2, 0.0) * count / max(count - 1, 1))
    half = 1.96 * spread / math.sqrt(count) if count > 1 else 0.0
    return Bucket(2**power - 1, 2 ** (power + 1) - 2, mean, half, int(count))


def useful_context(buckets: tuple[Bucket, ...], *, least: int = 32) -> int | None:
    """The context beyond which no longer one has a significantly lower loss; None where too little was read."""
    known = [bucket for bucket in buckets if bucket.tokens >= least]
    if len(known) < 2:
        return None
    for at, bucket in enumerate(known):
        if all(later.mean > bucket.mean - math.hypot(bucket.half, later.half) for later in known[at + 1 :]):
            return bucket.low
    return known[-1].low


_BEFORE, _AFTER = 32, 12  # characters around a piece


class Place(NamedTuple):
    before: str
    piece: str
    after: str
    first: float  # bits
    second: float

    @property
    def gap(self) -> float:
        """Above 0: the second model has the lower loss."""
        return self.first - self.second


def places(first: list[tuple[str, float]], second: list[tuple[str, float]]) -> list[Place]:
    """Every piece between two token ends that both models share, in the order of the text."""
    text = text_of(first)
    assert text_of(second) == text
    at = shared_ends([first, second])
    spans = zip([0, *at[:-1]], at)
    return [
        Place(text[max(start - _BEFORE, 0) : start], text[start:end], text[end : end + _AFTER], cost, other)
        for (start, end), cost, other in zip(spans, between(first, at), between(second, at))
    ]


class Rival(NamedTuple):
    """Losses of two runs on the same questions, paired."""

    name: str
    mine_N: Floats
    theirs_N: Floats
    of: str = ""  # what an entry is, where it is not a single answer

    @property
    def apart_N(self) -> Floats:
        """Above 0: the other has the lower loss."""
        both = ~(np.isnan(self.mine_N) | np.isnan(self.theirs_N))
        return (self.mine_N - self.theirs_N)[both]

    def interval(self) -> tuple[float, float]:
        """The mean difference, and half of its 95 % interval over answers."""
        apart_N = self.apart_N
        half = 1.96 * float(apart_N.std(ddof=1)) / len(apart_N) ** 0.5 if len(apart_N) > 1 else float("nan")
        return float(apart_N.mean()), half

    def sentence(self, name: str, unit: str) -> str:
        mean, half = self.interval()
        better, worse = (self.name, name) if mean > 0 else (name, self.name)
        sure = "" if abs(mean) > half else ", which is not significant"
        won = float((self.apart_N > 0).mean())
        return (
            f"{better} pays {plain(abs(mean))} ± {rough(half)} {unit} less than {worse} in the mean{sure}; "
            f"{self.name} pays less for {share(won)} of the {self.of or 'answer'}s."
        )

    def as_dict(self) -> dict[str, Any]:
        mean, half = self.interval()
        return {"run": self.name, "mean": float(np.nanmean(self.theirs_N)), "difference": mean, "half": half}

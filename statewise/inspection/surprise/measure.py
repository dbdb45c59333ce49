"""Surprise along a text of any length, and what it says of calibration and of the use of context.

T time.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from statewise.core import Machine
from statewise.inspection.progress import Progress
from statewise.inspection.reading import Reading, nats, read
from statewise.inspection.surprise.calibration import Bin, Tally

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
    entropy: float  # bits that the model expected to pay, in the mean

    @property
    def mean(self) -> float:
        return float(self.bits_T.mean())


def measure(model: Machine[Any], reading: Reading, progress: Progress) -> Surprise:
    costs, entropies = [], 0.0
    by_power: dict[int, list[float]] = {}  # count, sum and sum of squares
    tally = Tally()
    for one in read(model, reading, progress, what="reading for surprise"):
        bits_T = nats(one).double() / _LN2
        costs.append(bits_T.cpu())
        log_TV = one.logits_TV.log_softmax(-1)
        entropies -= float((log_TV.exp() * log_TV).sum(-1).double().sum()) / _LN2
        best = log_TV.max(-1)
        sure_T = best.values.exp().double().cpu()
        right_T = (best.indices == one.targets_T).double().cpu()
        tally.add(sure_T, right_T)
        power_T = torch.log2(one.position_T.cpu().double() + 1).long()
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
    """The context after which no longer one is surely cheaper; None where too little was read to say."""
    known = [one for one in buckets if one.tokens >= least]
    if len(known) < 2:
        return None
    for at, one in enumerate(known):
        if all(later.mean > one.mean - math.hypot(one.half, later.half) for later in known[at + 1 :]):
            return one.low
    return known[-1].low

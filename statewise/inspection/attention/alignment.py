"""How a target lies on its source: which way, and how well it agrees with what is known.

T target, S source.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Known = Literal["copy", "reversal"]


class Agreement(NamedTuple):
    right: int  # tokens whose largest weight is where it should be
    near: int  # or beside it: what a reader leaves at a place also knows its neighbours
    tokens: int
    weight: float  # mean weight on the right place


def known(source: Sequence[str], target: Sequence[str]) -> Known | None:
    """What a target is of its source, where that says which token came from which: one that reads the same from
    both ends is taken for a copy."""
    if list(source) == list(target):
        return "copy"
    if list(source)[::-1] == list(target):
        return "reversal"
    return None


def gold(kind: Known, length: int) -> list[int]:
    """For each token of the target its place in the source."""
    return list(range(length)) if kind == "copy" else list(range(length))[::-1]


def agreement(weights_TS: Tensor, places: Sequence[int]) -> Agreement:
    rows_T = weights_TS[: len(places)]
    gold_T = torch.tensor(places)
    off_T = (rows_T.argmax(-1) - gold_T).abs()
    right, near = int((off_T == 0).sum()), int((off_T <= 1).sum())
    return Agreement(right, near, len(places), float(rows_T[torch.arange(len(places)), gold_T].mean()))


def slope(weights_TS: Tensor) -> float:
    """Correlation of a token's place with the mean place it looks at: 1 runs forward, -1 backward."""
    weights_TS = weights_TS.double()
    time, places = weights_TS.shape
    if time < 2 or places < 2:
        return 0.0
    t_T = torch.arange(time, dtype=torch.float64)
    mean_T = weights_TS @ torch.arange(places, dtype=torch.float64) / weights_TS.sum(-1).clamp(min=1e-300)
    if float(mean_T.std()) < 1e-12:
        return 0.0
    return float(torch.corrcoef(torch.stack([t_T, mean_T]))[0, 1])

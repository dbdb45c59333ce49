"""How much of the time a unit stands at one of its ends, in one pass.

T time, U units.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_NEAR = 0.1  # of the way from one end to the other
_MOSTLY = 0.95  # of the time
_REACHES = 0.5
_WHOLE = 1e-3


class Saturation(NamedTuple):
    """Of each unit of a name: the share of moments at its low end and at its high end."""

    low: float  # the ends: 0 and 1 of a gate, -1 and 1 of what was squashed
    high: float
    at_low_U: NDArray[np.float64]
    at_high_U: NDArray[np.float64]
    mean_U: NDArray[np.float64]

    @property
    def is_gate(self) -> bool:
        return self.low == 0.0

    @property
    def stuck(self) -> int:
        """Units that hardly ever leave one end: they might as well not be there."""
        return int(((self.at_low_U > _MOSTLY) | (self.at_high_U > _MOSTLY)).sum())


class Saturating:
    """Feed it the chunks of a name. What its ends are is seen from the values: a gate never leaves 0 … 1."""

    def __init__(self) -> None:
        self.count = 0
        self.least, self.largest = np.inf, -np.inf
        self._divides = True  # at every moment all units together are 1
        self._counts: NDArray[np.int64] | None = None  # below -1+, near 0, near 1
        self._sum_U: NDArray[np.float64] | None = None

    def add(self, unit_TU: NDArray[np.float32]) -> None:
        self.count += len(unit_TU)
        self.least = min(self.least, float(unit_TU.min(initial=np.inf)))
        self.largest = max(self.largest, float(unit_TU.max(initial=-np.inf)))
        self._divides &= bool((np.abs(unit_TU.sum(1, dtype=np.float64) - 1) < _WHOLE).all())
        counts = np.stack(
            [
                (unit_TU < -1 + 2 * _NEAR).sum(0),
                (unit_TU < _NEAR).sum(0),
                (unit_TU > 1 - _NEAR).sum(0),
                (unit_TU > 1 - 2 * _NEAR).sum(0),
            ]
        )
        sums = unit_TU.sum(0, dtype=np.float64)
        self._counts = counts if self._counts is None else self._counts + counts
        self._sum_U = sums if self._sum_U is None else self._sum_U + sums

    def found(self) -> Saturation | None:
        """None for what has no ends: a cell, a loss, or what was constant all the time.

        Nor are chances gates: of what is divided among all units, most must be near 0.
        """
        if self._counts is None or self._sum_U is None or self._divides or not self.least < self.largest:
            return None
        # What stays far from 1 has other ends, which are not known.
        if self.least < -1 or self.largest > 1 or max(-self.least, self.largest) < _REACHES:
            return None
        below, near_0, near_1, above = self._counts / self.count
        mean_U = self._sum_U / self.count
        if self.least >= 0:
            return Saturation(0.0, 1.0, near_0, near_1, mean_U)
        return Saturation(-1.0, 1.0, below, above, mean_U)

"""Statistics of units in one pass over a text: correlation with features, and saturation.

T time steps, U units, F features, K shifts (the first is 0).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SLIDES = 99
_TOO_NEAR = 0.05  # of the text: a feature shifted by less still correlates with itself


class Follower(NamedTuple):
    """A unit that follows a feature."""

    name: str  # of what was observed
    unit: int
    feature: str
    r: float  # their correlation
    ratio: float  # |r| over the median, over shifts, of the best unit's
    p: float  # how often a shifted feature does as well, with any unit and feature


class Correlation:
    """Correlation of units with features; add every chunk of every observed name in order, then call `followers`.

    Neighbouring tokens are alike, so a test that takes them as independent would find correlations everywhere. Instead
    each feature is shifted along the text (its end continued at its beginning): a shifted feature is as smooth and as
    frequent as the true one, and unrelated to the text. Only correlations beyond the best of all units with shifted
    features are reported.
    """

    def __init__(self, features: dict[str, NDArray[np.float32]], *, slides: int = _SLIDES, seed: int = 0) -> None:
        assert features
        self.constant = [name for name, values in features.items() if values.std() < 1e-9]
        kept = {name: values.astype(np.float64) for name, values in features.items() if name not in self.constant}
        self.features = list(kept)
        self.places = len(next(iter(features.values())))
        least = max(1, int(_TOO_NEAR * self.places))
        choices = np.arange(least, max(least + 1, self.places - least))
        chosen = np.random.default_rng(seed).choice(choices, size=min(slides, len(choices)), replace=False)
        self.slide_K = np.concatenate([[0], np.sort(chosen)])
        # A shift changes neither mean nor standard deviation, so both are removed once.
        columns = [(values - values.mean()) / values.std() for values in kept.values()]
        self.feature_TF = np.stack(columns, axis=1).astype(np.float32) if columns else np.zeros((self.places, 0))
        self._sums: dict[str, tuple[Floats, Floats, Floats]] = {}
        self._centre: dict[str, NDArray[np.float32]] = {}

    def add(self, name: str, begin: int, unit_TU: NDArray[np.float32]) -> None:
        """The values of a name from place `begin` on."""
        # Centred, so that float32 products keep their precision; correlations do not change.
        centre_U = self._centre.setdefault(name, unit_TU.mean(0))
        unit_TU = unit_TU - centre_U
        at_TK = (begin + np.arange(len(unit_TU))[:, None] - self.slide_K) % self.places
        slid_TC = self.feature_TF[at_TK].reshape(len(unit_TU), -1)
        added = (
            unit_TU.sum(0, dtype=np.float64),
            np.square(unit_TU, dtype=np.float64).sum(0),
            (unit_TU.T @ slid_TC).astype(np.float64),
        )
        before = self._sums.get(name)
        self._sums[name] = (
            added if before is None else (before[0] + added[0], before[1] + added[1], before[2] + added[2])
        )

    def table(self, name: str) -> Floats:
        """Correlations `[U, K, F]`; 0 for a unit that never moves."""
        sum_U, square_U, product_UC = self._sums[name]
        spread_U = np.sqrt(np.maximum(square_U / self.places - (sum_U / self.places) ** 2, 0.0))
        r_UC = np.divide(
            product_UC / self.places, spread_U[:, None], out=np.zeros_like(product_UC), where=spread_U[:, None] > 1e-9
        )
        return r_UC.reshape(len(sum_U), len(self.slide_K), len(self.features))

    def followers(self, names: Sequence[str] | None = None, *, most: int = 3, level: float = 0.05) -> list[Follower]:
        """For each feature at most `most` units that follow it, significant at this `level`."""
        names = list(self._sums) if names is None else list(names)
        if not names or not self.features or len(self.slide_K) < 2:
            return []
        tables = {name: np.abs(self.table(name)) for name in names}
        best_KF = np.max([table.max(0) for table in tables.values()], axis=0)
        usual_F = np.maximum(np.median(best_KF[1:], axis=0), 1e-12)
        chance_K = (best_KF[1:] / usual_F).max(1)
        followers = []
        for at, feature in enumerate(self.features):
            ranked = sorted(
                (
                    (float(table[unit, 0, at]), name, int(unit))
                    for name, table in tables.items()
                    for unit in np.argsort(-table[:, 0, at])[:most]
                ),
                reverse=True,
            )
            for size, name, unit in ranked[:most]:
                ratio = size / float(usual_F[at])
                p = (1 + int((chance_K >= ratio).sum())) / (1 + len(chance_K))
                if p <= level:
                    r = float(self.table(name)[unit, 0, at])
                    followers.append(Follower(name, unit, feature, r, ratio, p))
        return sorted(followers, key=lambda follower: -follower.ratio)


_NEAR = 0.1  # of the way from one end to the other
_MOSTLY = 0.95  # of the time
_REACHES = 0.5
_WHOLE = 1e-3


class Saturation(NamedTuple):
    """Of each unit of a name: the share of time at its low end and at its high end."""

    low: float  # the ends: 0 and 1 of a gate, -1 and 1 of a tanh
    high: float
    at_low_U: NDArray[np.float64]
    at_high_U: NDArray[np.float64]
    mean_U: NDArray[np.float64]

    @property
    def is_gate(self) -> bool:
        return self.low == 0.0

    @property
    def stuck(self) -> int:
        """Units that are at one end nearly all the time."""
        return int(((self.at_low_U > _MOSTLY) | (self.at_high_U > _MOSTLY)).sum())


class Saturating:
    """Add the chunks of a name. Its ends are inferred from the values: a gate stays within 0 … 1."""

    def __init__(self) -> None:
        self.count = 0
        self.least, self.largest = np.inf, -np.inf
        self._divides = True  # at every place the units sum to 1
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
        """None for what has no ends: a cell, a loss, a constant; nor for probabilities, most of which are near 0."""
        if self._counts is None or self._sum_U is None or self._divides or not self.least < self.largest:
            return None
        # Values that stay far from 1 have other ends, which are not known.
        if self.least < -1 or self.largest > 1 or max(-self.least, self.largest) < _REACHES:
            return None
        below, near_0, near_1, above = self._counts / self.count
        mean_U = self._sum_U / self.count
        if self.least >= 0:
            return Saturation(0.0, 1.0, near_0, near_1, mean_U)
        return Saturation(-1.0, 1.0, below, above, mean_U)

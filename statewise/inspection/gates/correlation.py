"""Which unit follows which feature, in one pass over a text of any length, with care for how many were tried.

Neighbouring moments of a text are alike, so the usual test, which takes them for independent, would find something
everywhere. Here chance is measured instead: each feature is slid along the text, its end continued at its
beginning. A slid feature is as smooth and as frequent as the true one, and tells nothing of the text. What the
best of all units reaches with slid features is what chance can do; only what is beyond that is reported.

T moments, U units, F features, K slides (the first is none at all).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SLIDES = 99
_TOO_NEAR = 0.05  # of the text: a feature slid by less is still in step with itself


class Follower(NamedTuple):
    """A unit that follows a feature."""

    name: str  # of what was observed
    unit: int
    feature: str
    r: float  # their correlation
    ratio: float  # |r|, as a multiple of what the best unit usually has with that feature slid
    p: float  # how often chance does as well, anywhere among all units and features


class Correlation:
    """Feed it every chunk of every observed name, in order; then ask for `followers`."""

    def __init__(self, features: dict[str, NDArray[np.float32]], *, slides: int = _SLIDES, seed: int = 0) -> None:
        assert features
        self.constant = [name for name, values in features.items() if values.std() < 1e-9]
        kept = {name: values.astype(np.float64) for name, values in features.items() if name not in self.constant}
        self.features = list(kept)
        self.moments = len(next(iter(features.values())))
        least = max(1, int(_TOO_NEAR * self.moments))
        choices = np.arange(least, max(least + 1, self.moments - least))
        chosen = np.random.default_rng(seed).choice(choices, size=min(slides, len(choices)), replace=False)
        self.slide_K = np.concatenate([[0], np.sort(chosen)])
        # Sliding changes neither mean nor spread, so both are taken out once.
        columns = [(values - values.mean()) / values.std() for values in kept.values()]
        self.feature_TF = np.stack(columns, axis=1).astype(np.float32) if columns else np.zeros((self.moments, 0))
        self._sums: dict[str, tuple[Floats, Floats, Floats]] = {}
        self._centre: dict[str, NDArray[np.float32]] = {}

    def add(self, name: str, begin: int, unit_TU: NDArray[np.float32]) -> None:
        """What a name was at the moments from `begin` on."""
        # Near the mean, so that float32 products keep their digits; correlations do not see it.
        centre_U = self._centre.setdefault(name, unit_TU.mean(0))
        unit_TU = unit_TU - centre_U
        at_TK = (begin + np.arange(len(unit_TU))[:, None] - self.slide_K) % self.moments
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
        spread_U = np.sqrt(np.maximum(square_U / self.moments - (sum_U / self.moments) ** 2, 0.0))
        r_UC = np.divide(
            product_UC / self.moments, spread_U[:, None], out=np.zeros_like(product_UC), where=spread_U[:, None] > 1e-9
        )
        return r_UC.reshape(len(sum_U), len(self.slide_K), len(self.features))

    def followers(self, names: Sequence[str] | None = None, *, most: int = 3, level: float = 0.05) -> list[Follower]:
        """For each feature at most `most` units that follow it, none of them by chance at this `level`."""
        names = list(self._sums) if names is None else list(names)
        if not names or not self.features or len(self.slide_K) < 2:
            return []
        tables = {name: np.abs(self.table(name)) for name in names}
        best_KF = np.max([table.max(0) for table in tables.values()], axis=0)
        usual_F = np.maximum(np.median(best_KF[1:], axis=0), 1e-12)
        chance_K = (best_KF[1:] / usual_F).max(1)
        found = []
        for at, feature in enumerate(self.features):
            ranked = sorted(
                (
                    (float(table[unit, 0, at]), name, int(unit))
                    for name, table in tables.items()
                    for unit in _top(table[:, 0, at], most)
                ),
                reverse=True,
            )
            for size, name, unit in ranked[:most]:
                ratio = size / float(usual_F[at])
                p = (1 + int((chance_K >= ratio).sum())) / (1 + len(chance_K))
                if p <= level:
                    r = float(self.table(name)[unit, 0, at])
                    found.append(Follower(name, unit, feature, r, ratio, p))
        return sorted(found, key=lambda one: -one.ratio)


def _top(size_U: Floats, most: int) -> NDArray[np.intp]:
    return np.argsort(-size_U)[:most]

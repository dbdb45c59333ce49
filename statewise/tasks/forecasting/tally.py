"""Errors of forecasts, summed for every step ahead, so that any mean can be taken afterwards.

B windows, H steps ahead, C channels.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.tasks.forecasting.known import Units

Array = NDArray[np.float64]


class Errors(NamedTuple):
    """Means over windows, steps and channels. `mse` and `mae` are on the scale of the training part's deviation."""

    mse: float
    mae: float
    mse_original: float  # in the data's own units; over several channels, a mean of unlike things
    mae_original: float
    smape: float
    mase: float | None  # None: a channel of a series repeats itself exactly in the training part
    mse_at: list[float]  # exactly so many steps ahead: first 1, then 2, ...
    mae_at: list[float]


class Tally:
    def __init__(self, *, horizon: int) -> None:
        names = ("squared", "absolute", "squared_original", "absolute_original", "symmetric", "scaled", "count")
        self._sums = {name: np.zeros(horizon) for name in names}
        self._no_mase = False

    def add(self, target: Array, forecast: Array, units: Units) -> None:
        """Scaled values `[B, H, C]`, missing targets NaN; `units` of the same rows and channels."""
        mean, std, naive = (one[:, None] for one in units)
        known = ~np.isnan(target)
        apart = np.where(known, np.abs(target - forecast), 0.0)
        own = apart * std
        size = np.abs(target * std + mean) + np.abs(forecast * std + mean)
        self._no_mase |= bool((naive <= 0).any())
        losses = {
            "squared": apart**2,
            "absolute": apart,
            "squared_original": own**2,
            "absolute_original": own,
            "symmetric": 200 * own / np.where(known & (size > 0), size, 1.0),
            "scaled": own / np.where(naive > 0, naive, 1.0),
            "count": known,
        }
        for name, loss in losses.items():
            self._sums[name] += loss.sum((0, 2))

    def errors(self) -> Errors:
        total = max(self._sums["count"].sum(), 1.0)
        at_H = np.maximum(self._sums["count"], 1.0)
        mean = {name: float(sums.sum() / total) for name, sums in self._sums.items()}
        return Errors(
            mse=mean["squared"],
            mae=mean["absolute"],
            mse_original=mean["squared_original"],
            mae_original=mean["absolute_original"],
            smape=mean["symmetric"],
            mase=None if self._no_mase else mean["scaled"],
            mse_at=(self._sums["squared"] / at_H).tolist(),
            mae_at=(self._sums["absolute"] / at_H).tolist(),
        )

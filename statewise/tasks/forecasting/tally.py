"""Errors of forecasts, summed for every step ahead and every channel, so that any mean can be taken afterwards.

B windows, H steps ahead, C channels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.data.scaling import Scaling

Array = NDArray[np.float64]


class Errors(NamedTuple):
    """Means over windows, steps and channels. `mse` and `mae` are on the scale of the training part's deviation."""

    mse: float
    mae: float
    mse_original: float  # in the data's own units; over several channels, a mean of unlike things
    mae_original: float
    smape: float
    mase: float | None  # None: a channel of the training part repeats itself exactly
    mse_at: list[float]  # exactly so many steps ahead: first 1, then 2, ...
    mae_at: list[float]


class Tally:
    def __init__(self, scaling: Scaling, *, horizon: int) -> None:
        channels = len(scaling.mean_C)
        self._scaling = scaling
        self._squared, self._absolute, self._symmetric, self._count = (np.zeros((horizon, channels)) for _ in range(4))

    def add(self, target: Array, forecast: Array, channel_B: NDArray[np.int64] | None = None) -> None:
        """Scaled values `[B, H, C]`, missing targets NaN; or `[B, H, 1]` where `channel_B` says which channel it is."""
        if channel_B is not None:
            channels = self._count.shape[1]
            target, forecast = (_spread(one, channel_B, channels) for one in (target, forecast))
        known = ~np.isnan(target)
        own_target, own_forecast = self._scaling.location(target), self._scaling.location(forecast)
        size = np.abs(own_target) + np.abs(own_forecast)
        apart = np.where(known, np.abs(own_target - own_forecast), 0.0)
        symmetric = 200 * apart / np.where(known & (size > 0), size, 1.0)
        scaled = np.where(known, target - forecast, 0.0)
        self._squared += (scaled**2).sum(0)
        self._absolute += np.abs(scaled).sum(0)
        self._symmetric += symmetric.sum(0)
        self._count += known.sum(0)

    def errors(self, mase_C: Sequence[float]) -> Errors:
        std_C, naive_C = np.array(self._scaling.std_C), np.array(mase_C)
        total = max(self._count.sum(), 1.0)
        at_H = np.maximum(self._count.sum(1), 1.0)
        mase = None
        if (naive_C > 0).all():
            mase = float((self._absolute * std_C / naive_C).sum() / total)
        return Errors(
            mse=float(self._squared.sum() / total),
            mae=float(self._absolute.sum() / total),
            mse_original=float((self._squared * std_C**2).sum() / total),
            mae_original=float((self._absolute * std_C).sum() / total),
            smape=float(self._symmetric.sum() / total),
            mase=mase,
            mse_at=(self._squared.sum(1) / at_H).tolist(),
            mae_at=(self._absolute.sum(1) / at_H).tolist(),
        )


def _spread(values_BH1: Array, channel_B: NDArray[np.int64], channels: int) -> Array:
    """Single channels back at their place among all; the others are missing."""
    spread_BHC = np.full((*values_BH1.shape[:2], channels), np.nan)
    spread_BHC[np.arange(len(channel_B)), :, channel_B] = values_BH1[:, :, 0]
    return spread_BHC

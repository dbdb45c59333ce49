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
        mean, std = np.array(self._scaling.mean_C), np.array(self._scaling.std_C)
        if channel_B is not None:
            mean, std = mean[channel_B][:, None, None], std[channel_B][:, None, None]
        known = ~np.isnan(target)
        own_target, own_forecast = target * std + mean, forecast * std + mean
        size = np.abs(own_target) + np.abs(own_forecast)
        apart = np.where(known, np.abs(own_target - own_forecast), 0.0)
        symmetric = 200 * apart / np.where(known & (size > 0), size, 1.0)
        scaled = np.where(known, target - forecast, 0.0)
        self._squared += self._summed(scaled**2, channel_B)
        self._absolute += self._summed(np.abs(scaled), channel_B)
        self._symmetric += self._summed(symmetric, channel_B)
        self._count += self._summed(known.astype(np.float64), channel_B)

    def _summed(self, values: Array, channel_B: NDArray[np.int64] | None) -> Array:
        """`[H, C]`, over windows. Single channels go to their places; their number does not make it dearer."""
        if channel_B is None:
            return np.asarray(values.sum(0))
        order_B = np.argsort(channel_B, kind="stable")
        present, first = np.unique(channel_B[order_B], return_index=True)
        summed_HC = np.zeros_like(self._count)
        summed_HC[:, present] = np.add.reduceat(values[order_B, :, 0], first, axis=0).T
        return summed_HC

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

"""Errors of forecasts for every step ahead, and those of trivial forecasters on the same windows.

B or W windows, L history, H steps ahead, C channels.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.data import RollingOrigin, Span
from statewise.tasks.baseline import Autoregression, drift, repeat_last, seasonal_naive
from statewise.tasks.forecasting.known import Known, Units

Array = NDArray[np.float64]
_VALUES = 1 << 18


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
    """Sums of errors for every step ahead, so that any mean can be taken afterwards."""

    def __init__(self, *, horizon: int) -> None:
        names = ("squared", "absolute", "squared_original", "absolute_original", "symmetric", "scaled", "count")
        self._sums = {name: np.zeros(horizon) for name in names}
        self._no_mase = False

    def add(self, target: Array, forecast: Array, units: Units) -> None:
        """Scaled values `[B, H, C]`, missing targets NaN; `units` of the same rows and channels."""
        mean, std, naive = (unit[:, None] for unit in units)
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


def baseline_errors(
    spans: Sequence[Span], known: Known, *, context: int, horizon: int, stride: int
) -> dict[str, Errors]:
    """Repeat-last, seasonal-naive, drift and least squares, all of scaled series."""
    length = _history(spans, context=context, period=known.period)
    regression = _regression(known)
    makers: dict[str, Callable[[Array], Array]] = {"repeat last": lambda past: repeat_last(past[:, -context:], horizon)}
    if 1 < known.period <= length:
        makers["seasonal naive"] = lambda past: seasonal_naive(past, horizon, period=known.period)
    makers["drift"] = lambda past: drift(past[:, -context:], horizon)
    if regression is not None and len(regression.weight_PC) <= context:
        name = f"least squares AR({len(regression.weight_PC)})"
        makers[name] = lambda past: regression.forecast(past[:, -context:], horizon)
    tallies, units = {name: Tally(horizon=horizon) for name in makers}, known.units(spans)
    for past_WLC, target_WHC, span_W in _windows(spans, length=length, context=context, horizon=horizon, stride=stride):
        for name, forecast in makers.items():
            tallies[name].add(target_WHC, forecast(past_WLC), units.of(span_W))
    return {name: tally.errors() for name, tally in tallies.items()}


def _regression(known: Known) -> Autoregression | None:
    if not known.weight_PC:
        return None
    return Autoregression(np.array(known.constant_C), np.array(known.weight_PC))


def _history(spans: Sequence[Span], *, context: int, period: int) -> int:
    """The context, or a whole season where every window has so much behind it."""
    enough = all(max(span.begin, span.reach + context) >= span.reach + period for span in spans)
    return max(context, period) if enough else context


def _windows(
    spans: Sequence[Span], *, length: int, context: int, horizon: int, stride: int
) -> Iterator[tuple[Array, Array, NDArray[np.int64]]]:
    """The same windows as those of the model, and the span that each is from."""
    batch = max(1, _VALUES // ((length + horizon) * spans[0].series.values_TC.shape[1]))
    for one in RollingOrigin(spans, context=length, horizon=horizon, stride=stride, batch=batch, dtype=torch.float64):
        values_WTC = one.values_BTC.masked_fill(~one.observed_BTC, torch.nan).numpy()
        past_WLC = values_WTC[:, :length]
        # A channel that shows nothing at all in a context is taken to be at its mean.
        silent_WC = np.isnan(past_WLC[:, -context:]).all(1)
        past_WLC[:, -1] = np.where(silent_WC, 0.0, past_WLC[:, -1])
        yield past_WLC, values_WTC[:, length:], one.span_B.numpy()


def frame_nats(spans: Sequence[Span], known: Known) -> dict[str, float]:
    """For bits: nats per frame of each bit's frequency, and of a Markov chain for each, all frames but the first."""
    frequency_C, after_2C = np.array(known.frequency_C), np.array(known.after_2C)
    totals, count = [0.0, 0.0], 0
    for span in spans:
        values_TC = span.series.values_TC[span.begin : span.end]
        known_T = ~np.isnan(values_TC[1:]).any(1)
        chain_TC = np.where(values_TC[:-1] == 1, after_2C[1], after_2C[0])
        for number, p_TC in enumerate((chain_TC, np.broadcast_to(frequency_C, chain_TC.shape))):
            nats_T = -np.where(values_TC[1:] == 1, np.log(p_TC), np.log1p(-p_TC)).sum(1)
            totals[number] += float(nats_T[known_T].sum())
        count += int(known_T.sum())
    names = ("each bit's own Markov chain", "each bit's frequency", "uniform (knows nothing)")
    return dict(zip(names, [*(total / max(count, 1) for total in totals), len(frequency_C) * math.log(2)]))

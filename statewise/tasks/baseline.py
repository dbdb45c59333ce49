"""Trivial baselines, which every metric of a model is compared with.

B batch, T time, C channels, H time steps ahead, P order of an autoregression.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from statewise.specs import UserError
from statewise.tasks.metric.score import check_pairs

Array = NDArray[np.float64]


# Tags.


class FrequentTag(NamedTuple):
    """The tag each word had most often in training; an unknown word gets the tag most frequent of all."""

    of_word: Mapping[str, str]
    otherwise: str

    def tag(self, words: Sequence[str]) -> list[str]:
        return [self.of_word.get(word, self.otherwise) for word in words]


def fit_frequent_tag(words: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> FrequentTag:
    """Of two tags equally frequent, the one that was seen first."""
    check_pairs(len(tags), len(words), of="rows")
    by_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
    overall: Counter[str] = Counter()
    for number, (row, row_tags) in enumerate(zip(words, tags)):
        if len(row) != len(row_tags):
            raise UserError(f"row {number} has {len(row)} words, but {len(row_tags)} tags")
        for word, tag in zip(row, row_tags):
            by_word[word][tag] += 1
            overall[tag] += 1
    if not overall:
        raise UserError("there are no training tags to count")
    chosen = {word: counts.most_common(1)[0][0] for word, counts in by_word.items()}
    return FrequentTag(chosen, overall.most_common(1)[0][0])


# Series. A history is `[..., T, C]`, a forecast `[..., H, C]`. What is missing (NaN) is passed over.


def repeat_last(history: ArrayLike, horizon: int) -> Array:
    """The last value known, for ever."""
    past = _history(history, horizon)
    return np.repeat(_carried(past)[..., -1:, :], horizon, axis=-2)


def seasonal_naive(history: ArrayLike, horizon: int, *, period: int) -> Array:
    """The value one period before; where that is missing, the one a period earlier still."""
    past = _history(history, horizon)
    if not 1 <= period <= past.shape[-2]:
        raise UserError(f"period = {period} does not fit into a history of {past.shape[-2]} time steps")
    cycles = past.shape[-2] // period
    whole = past[..., past.shape[-2] - cycles * period :, :]
    by_cycle = whole.reshape(*past.shape[:-2], cycles, period * past.shape[-1])
    last = _carried(by_cycle)[..., -1, :].reshape(*past.shape[:-2], period, past.shape[-1])
    return last[..., np.arange(horizon) % period, :]


def drift(history: ArrayLike, horizon: int) -> Array:
    """On along the line through the first and the last value known."""
    past = _history(history, horizon)
    known = ~np.isnan(past)
    time = past.shape[-2]
    first = known.argmax(-2, keepdims=True)
    last = time - 1 - known[..., ::-1, :].argmax(-2, keepdims=True)
    begin, end = np.take_along_axis(past, first, -2), np.take_along_axis(past, last, -2)
    slope = (end - begin) / np.maximum(last - first, 1)
    ahead = np.arange(horizon)[:, None] + time - last  # time steps since the last one known
    line: Array = end + slope * ahead
    return line


class Autoregression(NamedTuple):
    """`x_t = c + Σ_p a_p x_t-p`: each channel looks at its own past."""

    constant_C: Array
    weight_PC: Array  # [lag - 1, channel]

    def forecast(self, history: ArrayLike, horizon: int) -> Array:
        """Step by step, its own forecasts in the place of what is not known yet."""
        past = _history(history, horizon)
        order = len(self.weight_PC)
        if past.shape[-2] < order:
            raise UserError(
                f"a history of {past.shape[-2]} time steps is too short for an autoregression of order {order}"
            )
        if past.shape[-1] != len(self.constant_C):
            raise UserError(f"the history has {past.shape[-1]} channels, the autoregression {len(self.constant_C)}")
        seen = _carried(past)[..., past.shape[-2] - order :, :]
        ahead = []
        for _ in range(horizon):
            value = self.constant_C + np.einsum("...pc,pc->...c", seen[..., ::-1, :], self.weight_PC)
            ahead.append(value)
            seen = np.concatenate([seen, value[..., None, :]], axis=-2)[..., 1:, :]
        return np.stack(ahead, axis=-2)


def fit_autoregression(series: Sequence[ArrayLike], *, order: int) -> Autoregression:
    """Least squares over all windows of all series `[T, C]` that miss nothing."""
    if order < 1:
        raise UserError(f"order = {order} is not valid, expected 1 or more")
    windows = []
    for number, item in enumerate(series):
        values_TC = np.asarray(item, dtype=np.float64)
        if values_TC.ndim != 2:
            raise UserError(f"series {number} has shape {list(values_TC.shape)}, expected [time, channels]")
        if len(values_TC) > order:
            windows.append(np.lib.stride_tricks.sliding_window_view(values_TC, order + 1, axis=0))
    if not windows:
        raise UserError(f"no series is longer than the order {order}", fix="choose a smaller order")
    windows_NCW = np.concatenate(windows)
    channels = windows_NCW.shape[1]
    past_NPC, now_NC = windows_NCW[:, :, -2::-1].swapaxes(1, 2), windows_NCW[:, :, -1]
    constant_C, weight_PC = np.zeros(channels), np.zeros((order, channels))
    for channel in range(channels):
        inputs_NP, target_N = past_NPC[:, :, channel], now_NC[:, channel]
        known_N = ~(np.isnan(inputs_NP).any(1) | np.isnan(target_N))
        if not known_N.any():
            raise UserError(
                f"no window of {order + 1} time steps is without a missing value", fix="choose a smaller order"
            )
        design_NI = np.column_stack([np.ones(known_N.sum()), inputs_NP[known_N]])
        solution_I = np.linalg.lstsq(design_NI, target_N[known_N], rcond=None)[0]
        constant_C[channel], weight_PC[:, channel] = solution_I[0], solution_I[1:]
    return Autoregression(constant_C, weight_PC)


def _history(history: ArrayLike, horizon: int) -> Array:
    past = np.asarray(history, dtype=np.float64)
    if past.ndim < 2 or not past.shape[-2]:
        raise UserError(f"the history has shape {list(past.shape)}, expected [..., time, channels]")
    if horizon < 1:
        raise UserError(f"horizon = {horizon} is not valid, expected 1 or more")
    if np.isnan(past).all(-2).any():
        raise UserError("a channel has no known value in the history, so nothing can be forecast from it")
    return past


def _carried(values: Array) -> Array:
    """Each missing value becomes the last one known before it, or, at the beginning, the first one after."""
    known = ~np.isnan(values)
    place = np.broadcast_to(np.arange(values.shape[-2])[:, None], values.shape)
    last = np.maximum.accumulate(np.where(known, place, -1), axis=-2)
    first = known.argmax(-2, keepdims=True)
    return np.take_along_axis(values, np.where(last < 0, first, last), -2)

"""Windows of series: a context that is read, a horizon that is forecast.

Training windows are a pure function of (seed, step, rank, world); evaluation rolls the origin on, and
counts every window once.

B rows, T context and horizon together, C channels, X covariates, N rows of all series, W windows.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.data.batch import draws, share
from statewise.data.series import Series
from statewise.data.split import Span
from statewise.specs import UserError, setting

Channels = Literal["joint", "shared"]


class SeriesBatch(NamedTuple):
    """Values are 0 where none was observed. The first `context` steps are read, the others forecast."""

    values_BTC: Tensor
    observed_BTC: Tensor
    covariates_BTX: Tensor
    context: int
    span_B: Tensor  # the number of the row's span
    origin_B: Tensor  # the first row to forecast, in its series
    channel_B: Tensor | None  # shared: the row's channel; joint: None


class _Windows:
    """All windows of some spans by number: series by series, origins in order."""

    def __init__(
        self, spans: Sequence[Span], *, context: int, horizon: int, stride: int, channels: Channels, dtype: torch.dtype
    ) -> None:
        if context < 1 or horizon < 1 or stride < 1:
            raise UserError(f"context {context}, horizon {horizon}, stride {stride}: expected at least 1 of each")
        if not spans:
            raise UserError("there is no series to take windows from")
        self._context, self._time, self._stride = context, context + horizon, stride
        self._channels, self._dtype = channels, dtype
        _refuse_missing_covariates(spans)
        self._first_S = np.array([max(span.begin, span.reach + context) for span in spans])
        last_S = np.array([span.end - horizon for span in spans])
        count_S = np.maximum(0, (last_S - self._first_S) // stride + 1)
        self.too_short = tuple(span.series.id for span, count in zip(spans, count_S) if not count)
        if not count_S.any():
            longest = max(spans, key=lambda span: span.end - span.reach)
            origin = f" of {longest.series.where}" if longest.series.where else ""
            raise UserError(
                f"no series is long enough for a context of {context} and a horizon of {horizon}: the longest, "
                f"{longest.series.id!r}{origin}, has {longest.end - longest.begin} rows here",
                fix=f"shorten them: {setting({'forecast.context': 'N', 'forecast.horizon': 'N'})}; or give more rows",
            )
        self._borders = np.concatenate([[0], np.cumsum(count_S)])
        # One copy of each series, even with several spans.
        unique = {id(span.series): span.series for span in spans}
        offsets = dict(zip(unique, np.cumsum([0, *map(len, unique.values())])))
        self._offset_S = np.array([offsets[id(span.series)] for span in spans])
        self._values_NC = np.concatenate([series.values_TC for series in unique.values()])
        self._covariates_NX = np.concatenate([series.covariates_TX for series in unique.values()])
        self._width = self._values_NC.shape[1]

    @property
    def windows(self) -> int:
        return int(self._borders[-1]) * (self._width if self._channels == "shared" else 1)

    def _gather(self, number_B: NDArray[np.int64]) -> SeriesBatch:
        shared = self._channels == "shared"
        number_B, channel_B = np.divmod(number_B, self._width) if shared else (number_B, np.zeros_like(number_B))
        span_B = np.searchsorted(self._borders, number_B, side="right") - 1
        origin_B = self._first_S[span_B] + (number_B - self._borders[span_B]) * self._stride
        at_BT = (self._offset_S[span_B] + origin_B - self._context)[:, None] + np.arange(self._time)
        # Index the one channel directly: gathering all of them first is slower by their number.
        values_BTC = self._values_NC[at_BT, channel_B[:, None]][:, :, None] if shared else self._values_NC[at_BT]
        observed_BTC = ~np.isnan(values_BTC)
        return SeriesBatch(
            torch.from_numpy(np.where(observed_BTC, values_BTC, 0.0)).to(self._dtype),
            torch.from_numpy(observed_BTC),
            torch.from_numpy(self._covariates_NX[at_BT]).to(self._dtype),
            self._context,
            torch.from_numpy(span_B),
            torch.from_numpy(origin_B),
            torch.from_numpy(channel_B) if shared else None,
        )


@final
class SeriesWindows(_Windows):
    """Windows drawn uniformly from the spans, with random access by step.

    `channels="joint"`: a row has all channels. `"shared"`: each channel is a row, and all share one model.
    `too_short` are the series without any window.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        *,
        context: int,
        horizon: int,
        batch: int,
        channels: Channels = "joint",
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        assert 0 <= rank < world
        mine = share(batch, rank=rank, world=world)
        super().__init__(spans, context=context, horizon=horizon, stride=1, channels=channels, dtype=torch.float32)
        self._batch, self._seed = batch, seed
        self.first_row = mine.start  # of this process, among the rows of all
        self._mine_B = mine

    def at(self, step: int) -> SeriesBatch:
        draws_B = draws(self._seed, 0, block=step, count=self._batch)[self._mine_B]
        return self._gather((draws_B % np.uint64(self.windows)).astype(np.int64))


@final
class RollingOrigin(_Windows):
    """A backtest: every origin of the spans, `stride` rows apart, once."""

    def __init__(
        self,
        spans: Sequence[Span],
        *,
        context: int,
        horizon: int,
        stride: int = 1,
        batch: int = 64,
        channels: Channels = "joint",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        assert batch >= 1
        super().__init__(spans, context=context, horizon=horizon, stride=stride, channels=channels, dtype=dtype)
        self._batch = batch

    def __len__(self) -> int:
        return -(-self.windows // self._batch)

    def at(self, number: int) -> SeriesBatch:
        """A batch of one window."""
        return self._gather(np.array([number]))

    def __iter__(self) -> Iterator[SeriesBatch]:
        for first in range(0, self.windows, self._batch):
            yield self._gather(np.arange(first, min(first + self._batch, self.windows)))


class SeriesRows(NamedTuple):
    """Whole series side by side, each padded with zeros to the longest."""

    values_BTC: Tensor
    observed_BTC: Tensor  # False in the padding too
    covariates_BTX: Tensor
    lengths_B: Tensor


def series_rows(series: Sequence[Series]) -> SeriesRows:
    """A padded batch of whole series, in order: for many short ones."""
    _refuse_missing_covariates([Span(item, 0, len(item), 0) for item in series])
    time = max(map(len, series))
    values_BTC = np.full((len(series), time, series[0].values_TC.shape[1]), np.nan)
    covariates_BTX = np.zeros((len(series), time, series[0].covariates_TX.shape[1]))
    for row, item in enumerate(series):
        values_BTC[row, : len(item)] = item.values_TC
        covariates_BTX[row, : len(item)] = item.covariates_TX
    observed_BTC = ~np.isnan(values_BTC)
    return SeriesRows(
        torch.from_numpy(np.where(observed_BTC, values_BTC, 0.0)).float(),
        torch.from_numpy(observed_BTC),
        torch.from_numpy(covariates_BTX).float(),
        torch.tensor([len(item) for item in series]),
    )


def _refuse_missing_covariates(spans: Sequence[Span]) -> None:
    """A missing target can be masked out of the loss; a missing input cannot."""
    for span in spans:
        absent = np.argwhere(np.isnan(span.series.covariates_TX))
        if len(absent):
            row, column = absent[0]
            raise UserError(
                f"{span.series.where!r}, series {span.series.id!r}: covariate {span.series.covariates[column]!r} is "
                f"missing at {span.series.time_T[row]} ({len(absent)} in all)",
                fix=f"fill it in, leave it out, or repeat the last value: {setting('data.missing', 'forward')}",
            )

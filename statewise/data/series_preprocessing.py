"""What a model reads of a series: channels scaled by the training part, and time features (hour, day, month, t).

T time, C channels, X covariates.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from statewise.data.series import Series
from statewise.data.split import Span
from statewise.specs import UserError, nearest


@dataclass(frozen=True)
class Scaling:
    """`(x - mean) / std` for each channel; a constant channel is only shifted.

    The last axis is the channel.
    """

    mean_C: tuple[float, ...]
    std_C: tuple[float, ...]

    @staticmethod
    def none(channels: int) -> "Scaling":
        return Scaling((0.0,) * channels, (1.0,) * channels)

    @staticmethod
    def fit(spans: Sequence[Span], *, kind: Literal["standard", "none"]) -> "Scaling":
        """From the rows of the spans only, without missing values."""
        channels = spans[0].series.channels
        if kind == "none":
            return Scaling.none(len(channels))
        means, stds = [], []
        values_NC = np.concatenate([span.series.values_TC[span.begin : span.end] for span in spans])
        for name, values_N in zip(channels, values_NC.T, strict=True):
            mean, std = _mean_and_std(values_N)
            if mean is None:
                raise UserError(f"channel {name!r} has no value at all in the training part", fix="leave it out")
            means.append(mean)
            stds.append(std or 1.0)
        return Scaling(tuple(means), tuple(stds))

    def refit(self, values_TC: NDArray[np.float64]) -> "Scaling":
        """From one series; a channel without values keeps the mean of `self`, a constant one its std."""
        own = [_mean_and_std(values_T) for values_T in values_TC.T]
        means = (mine if mean is None else mean for (mean, _), mine in zip(own, self.mean_C, strict=True))
        stds = (mine if std is None else std for (_, std), mine in zip(own, self.std_C, strict=True))
        return Scaling(tuple(means), tuple(stds))

    def apply(self, series: Series) -> Series:
        return replace(series, values_TC=self.scaled(series.values_TC))

    def scaled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        scaled: NDArray[np.float64] = (values - np.array(self.mean_C)) / np.array(self.std_C)
        return scaled

    def location(self, scaled: NDArray[np.float64]) -> NDArray[np.float64]:
        """Back to the data's own units: a value, a mean, a quantile."""
        values: NDArray[np.float64] = scaled * np.array(self.std_C) + np.array(self.mean_C)
        return values

    def to_json(self) -> dict[str, list[float]]:
        return {"mean": list(self.mean_C), "std": list(self.std_C)}

    @staticmethod
    def from_json(record: Any) -> "Scaling":
        """The inverse of `to_json`, exact."""
        try:
            mean_C, std_C = (tuple(float(number) for number in record[name]) for name in ("mean", "std"))
        except (KeyError, TypeError, ValueError):
            mean_C, std_C = (), ()
        if not mean_C or len(mean_C) != len(std_C) or not np.isfinite([*mean_C, *std_C]).all() or min(std_C) <= 0:
            raise UserError("a scaling is a mean and a positive std for each channel; this record is not one")
        return Scaling(mean_C, std_C)


def _mean_and_std(values_N: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """Of the values present; None without values, and for the std of a constant."""
    seen_N = values_N[~np.isnan(values_N)]
    if not len(seen_N):
        return None, None
    largest = float(np.abs(seen_N).max())
    # Squares of very small numbers would be 0: scale the largest to about 1, exactly, by a power of two.
    unit = 2.0 ** math.frexp(largest)[1]
    mean, std = unit * float((seen_N / unit).mean()), unit * float((seen_N / unit).std())
    # Dividing by the rounding noise of a constant would make it the largest channel.
    still = std <= 1e-12 * largest or bool((seen_N == seen_N[0]).all())
    return (float(seen_N[0]), None) if still else (mean, std)


def _within(time_T: NDArray[Any], whole: str, part: str) -> NDArray[np.float64]:
    """The number of `part`s since the start of the `whole` at each time."""
    passed_T: NDArray[Any] = time_T.astype(f"datetime64[{part}]") - time_T.astype(f"datetime64[{whole}]")
    return passed_T.astype(np.float64)


# Each from -1/2 to 1/2 over the calendar's range.
_CALENDAR: dict[str, Callable[[NDArray[Any]], NDArray[np.float64]]] = {
    "minute": lambda time_T: _within(time_T, "h", "m") / 59 - 0.5,
    "hour": lambda time_T: _within(time_T, "D", "h") / 23 - 0.5,
    # The first day of the epoch was a Thursday; Monday is 0.
    "weekday": lambda time_T: (time_T.astype("datetime64[D]").astype(np.int64) + 3) % 7 / 6 - 0.5,
    "day": lambda time_T: _within(time_T, "M", "D") / 30 - 0.5,
    "month": lambda time_T: _within(time_T, "Y", "M") / 11 - 0.5,
}
TIME_FEATURES = ("t", *_CALENDAR)


def with_time_features(series: Series, features: Sequence[str], *, until: int | None = None) -> Series:
    """The same series with `features` as further covariates.

    `t` is 0 at the first row and 1 at row `until` (default: the last). Let `until` be the end of the training part, so
    that the scale does not depend on later rows.
    """
    added = []
    for name in features:
        if name not in TIME_FEATURES:
            raise UserError(f"there is no time feature {name!r}", fix=nearest(name, TIME_FEATURES))
        if name in series.covariates:
            raise UserError(f"{series.where or series.id!r} already has a covariate called {name!r}")
        if name == "t":
            added.append(np.arange(len(series)) / max(1, (len(series) - 1) if until is None else until))
        elif series.time_T.dtype.kind != "M":
            raise UserError(
                f"{series.where or series.id!r} has no calendar, so no {name!r}: its times are numbers",
                fix="use t, or a time column with dates",
            )
        else:
            added.append(_CALENDAR[name](series.time_T))
    covariates_TX = np.column_stack([series.covariates_TX, *added])
    return replace(series, covariates_TX=covariates_TX, covariates=(*series.covariates, *features))

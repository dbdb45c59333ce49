"""What training learns of its data besides weights: scale, season, and what the baselines need.

P order, C channels, N frames, S spans.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from statewise.data import Scaling, Series, SeriesParts, Span
from statewise.specs import ForecastingSpec, UserError, from_json
from statewise.tasks.baseline import fit_autoregression

Array = NDArray[np.float64]
_LARGEST_ORDER = 200
_SIZES = (1, 2, 4, 8, 16, 32)  # rows whose mean is taken before a season is looked for


class Units(NamedTuple):
    """What a row's values are measured in: `value · std + mean` is in the data's own units, `naive` scales MASE."""

    mean_SC: Array
    std_SC: Array
    naive_SC: Array

    def of(self, span_B: NDArray[np.int64], channel_B: NDArray[np.int64] | None = None) -> "Units":
        """Of rows that are from these spans, and perhaps one channel each."""
        rows = (one[span_B] for one in self)
        return Units(*(row if channel_B is None else row[np.arange(len(row)), channel_B, None] for row in rows))


class Known(NamedTuple):
    """What training learnt of its data: all that a folder needs to read other series the same way."""

    channels: tuple[str, ...]
    covariates: tuple[str, ...]  # of the file; time features come after them
    scaling: Scaling  # of all series together
    gaps: bool  # some values were missing
    until: int  # the row where t is 1
    period: int
    mase_C: tuple[float, ...]  # the seasonal-naive error on the training part, in the data's own units, of all series
    constant_C: tuple[float, ...] = ()  # least squares on scaled values, each channel from its own past
    weight_PC: tuple[tuple[float, ...], ...] = ()
    frequency_C: tuple[float, ...] = ()  # of bits: how often each is on,
    after_2C: tuple[tuple[float, ...], ...] = ()  # and how often after it was off, and after it was on
    covariate_mean_X: tuple[float, ...] = ()  # nothing: covariates are read as they are
    covariate_std_X: tuple[float, ...] = ()
    scaling_of: Mapping[str, Scaling] = MappingProxyType({})  # each series by itself; nothing: `scaling` serves all
    mase_of: Mapping[str, tuple[float, ...]] = MappingProxyType({})  # where there are several series

    def with_series(self, found: Iterable[tuple[Series, int]]) -> "Known":
        """Also of series that training did not see, each by so many rows before the first that is forecast."""
        past_of = {one.id: one.values_TC[:before] for one, before in found if one.id not in self.mase_of}
        if not past_of or not self.mase_of:
            return self
        scaling_of = {name: self.scaling.refit(past_TC) for name, past_TC in past_of.items()} if self.scaling_of else {}
        mase_of = {
            name: tuple(own or of_all for own, of_all in zip(_naive_error([past_TC], self.period), self.mase_C))
            for name, past_TC in past_of.items()
        }
        return self._replace(scaling_of={**self.scaling_of, **scaling_of}, mase_of={**self.mase_of, **mase_of})

    @property
    def unit(self) -> str:
        if self.scaling == Scaling.none(len(self.channels)):
            return "the data's own units"
        return f"deviations of {'each series' if self.scaling_of else 'the training part'}"

    def scaling_for(self, series: Series) -> Scaling:
        return self.scaling_of.get(series.id, self.scaling)

    def units(self, spans: Sequence[Span]) -> Units:
        scales = [self.scaling_for(span.series) for span in spans]
        return Units(
            np.array([scale.mean_C for scale in scales]),
            np.array([scale.std_C for scale in scales]),
            np.array([self.mase_of.get(span.series.id, self.mase_C) for span in spans]),
        )

    def scaled(self, series: Series) -> Series:
        """Values and covariates as a model reads them."""
        if self.covariate_mean_X:
            scaled_TX = (series.covariates_TX - np.array(self.covariate_mean_X)) / np.array(self.covariate_std_X)
            series = replace(series, covariates_TX=scaled_TX)
        return self.scaling_for(series).apply(series)

    def to_json(self) -> str:
        scalings = {name: scaling.to_json() for name, scaling in self.scaling_of.items()}
        record = {"scaling": self.scaling.to_json(), "scaling_of": scalings, "mase_of": dict(self.mase_of)}
        return json.dumps({**self._asdict(), **record}, indent=1) + "\n"

    @staticmethod
    def from_json(text: str, *, where: Path) -> "Known":
        try:
            record = from_json(text)
            return Known(
                tuple(map(str, record["channels"])),
                tuple(map(str, record["covariates"])),
                Scaling.from_json(record["scaling"]),
                bool(record["gaps"]),
                int(record["until"]),
                int(record["period"]),
                tuple(map(float, record["mase_C"])),
                tuple(map(float, record["constant_C"])),
                tuple(tuple(map(float, row)) for row in record["weight_PC"]),
                tuple(map(float, record["frequency_C"])),
                tuple(tuple(map(float, row)) for row in record["after_2C"]),
                # Folders of before covariates were scaled have none of these.
                tuple(map(float, record.get("covariate_mean_X", ()))),
                tuple(map(float, record.get("covariate_std_X", ()))),
                # Those of before each series had its own scale have none of these.
                {str(name): Scaling.from_json(one) for name, one in record.get("scaling_of", {}).items()},
                {str(name): tuple(map(float, one)) for name, one in record.get("mase_of", {}).items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            raise UserError(f"{str(where)!r}: series.json is not what a forecasting run writes") from None


def learn(spec: ForecastingSpec, parts: SeriesParts) -> Known:
    """From the training part alone."""
    first = parts.train[0].series
    if spec.objective.of_bits:
        for span in (*parts.train, *parts.validation, *parts.test):
            refuse_no_bits(span.series)
    period = spec.data.period or guess_period(parts.train)
    gaps = any(np.isnan(span.series.values_TC[span.begin : span.end]).any() for span in parts.train)
    known = Known(
        first.channels,
        first.covariates,
        Scaling.fit(parts.train, kind="none" if spec.data.scaling == "none" else "standard"),
        gaps,
        max(span.end for span in parts.train),
        period,
        _naive_error(_values(parts.train), period),
    )
    if first.covariates and spec.data.scaling != "none":
        known = known._replace(**_covariates(parts.train))
    if spec.objective.of_bits:
        return known._replace(**_frames(parts.train))
    known = known._replace(**_each(known, parts, scale=spec.data.scaling == "standard"))
    context = spec.forecast.context if isinstance(spec.forecast.context, int) else min(map(_rows, parts.train))
    order = min(context, max(8, period + 1), _LARGEST_ORDER)
    scaled = [span._replace(series=known.scaling_for(span.series).apply(span.series)) for span in parts.train]
    return known._replace(**_regression(_values(scaled), order=order))


def _each(known: Known, parts: SeriesParts, *, scale: bool) -> dict[str, Any]:
    """Of several series the naive error of each; and its scale, if all that is held out is of series seen here."""
    spans: dict[str, list[Span]] = {}
    for span in parts.train:
        spans.setdefault(span.series.id, []).append(span)
    if len(spans) == 1:
        return {}
    update: dict[str, Any] = {
        "mase_of": {name: _naive_error(_values(own), known.period) for name, own in spans.items()}
    }
    if scale and all(span.series.id in spans for span in (*parts.validation, *parts.test)):
        update["scaling_of"] = {name: known.scaling.refit(np.concatenate(_values(own))) for name, own in spans.items()}
    return update


def _covariates(spans: Sequence[Span]) -> dict[str, Any]:
    """Their scale, as that of values: a pressure in pascals would drown all else that is read."""
    as_values = [
        span._replace(series=replace(one, values_TC=one.covariates_TX, channels=one.covariates))
        for span in spans
        for one in [span.series]
    ]
    scaling = Scaling.fit(as_values, kind="standard")
    return {"covariate_mean_X": scaling.mean_C, "covariate_std_X": scaling.std_C}


def _rows(span: Span) -> int:
    return span.end - span.begin


def _values(spans: Sequence[Span]) -> list[Array]:
    return [span.series.values_TC[span.begin : span.end] for span in spans]


def _regression(series: Sequence[Array], *, order: int) -> dict[str, Any]:
    """Of the order wanted, or a smaller one where series are too short or have too many holes; nothing if none fits."""
    while order >= 1:
        try:
            fitted = fit_autoregression(series, order=order)
        except UserError:
            order //= 2
        else:
            weights = tuple(map(tuple, fitted.weight_PC.tolist()))
            return {"constant_C": tuple(fitted.constant_C.tolist()), "weight_PC": weights}
    return {}


def _frames(spans: Sequence[Span]) -> dict[str, Any]:
    """Counts of bits, add-one smoothed."""
    frames = _values(spans)
    all_NC = np.concatenate(frames)
    frequency_C = (np.nansum(all_NC, 0) + 1) / ((~np.isnan(all_NC)).sum(0) + 2)
    before_NC, after_NC = (np.concatenate([frame[some] for frame in frames]) for some in (slice(-1), slice(1, None)))
    known_NC = ~np.isnan(after_NC)
    after_2C = [
        (((after_NC == 1) & (before_NC == bit)).sum(0) + 1) / ((known_NC & (before_NC == bit)).sum(0) + 2)
        for bit in (0, 1)
    ]
    return {"frequency_C": tuple(frequency_C.tolist()), "after_2C": tuple(tuple(row.tolist()) for row in after_2C)}


def refuse_no_bits(series: Series) -> None:
    values_TC = series.values_TC
    wrong = np.argwhere(~np.isnan(values_TC) & (values_TC != 0) & (values_TC != 1))
    if len(wrong):
        row, column = wrong[0]
        raise UserError(
            f"{series.where or series.id!r}: {series.channels[column]!r} is {values_TC[row, column]:g} at "
            f"{series.time_T[row]}, but objective.kind = bernoulli takes 0 and 1 alone",
            fix="choose another objective: squared, gaussian, student or quantile",
        )


def guess_period(spans: Sequence[Span], *, longest: int = 400) -> int:
    """The lag at which the training part resembles itself most, once its slow changes are taken out; 1 if none does.

    Of the autocorrelation of first differences, the first clear peak among the highest: a day rather than a week of
    days. Where noise hides it from them, of differences between means of 2 rows, of 4, and so on.
    """
    rows = sum(span.end - span.begin for span in spans)
    for size in _SIZES:
        alike_L = _autocorrelation(spans, size=size, longest=longest)
        # So many deviations of noise's own autocorrelation, or what looks like a season is chance.
        chance = 3 / np.sqrt(rows) if size == 1 else 4 * np.sqrt(1.5 * size / rows)
        season = _season(alike_L, least=max(0.1, chance), begin=2 if size == 1 else 2 * size + 1)
        if season > 1:
            # Now that it is known about how long it is, as many rows as that allows say it more exactly.
            size = max(size for size in _SIZES if size <= max(1, season / 8))
            return _exactly(_autocorrelation(spans, size=size, longest=longest), season)
    return 1


def _autocorrelation(spans: Sequence[Span], *, size: int, longest: int) -> Array:
    """Of differences between the means of `size` rows and of as many before them; the mean of series and channels."""
    total_L = np.zeros(0)
    for span in spans:
        values_TC = span.series.values_TC[span.begin : span.end]
        limit = min(longest, (len(values_TC) - 1) // 3)
        if limit < 3 * size:
            continue
        mean_TC = sliding_window_view(values_TC, size, axis=0).mean(-1)
        step_TC = mean_TC[size:] - mean_TC[:-size]
        there_TC = ~np.isnan(step_TC)
        step_TC = np.where(there_TC, step_TC, 0.0)
        step_TC = np.where(there_TC, step_TC - step_TC.sum(0) / np.maximum(there_TC.sum(0), 1), 0.0)
        size_C = np.maximum((step_TC**2).sum(0), 1e-300)
        spectrum = np.abs(np.fft.rfft(step_TC, 2 * len(step_TC), axis=0)) ** 2
        alike_L = (np.fft.irfft(spectrum, axis=0)[: limit + 1] / size_C).mean(1)
        width = max(len(total_L), len(alike_L))
        total_L = np.pad(total_L, (0, width - len(total_L))) + np.pad(alike_L, (0, width - len(alike_L)))
    return total_L / max(1, len(spans))


def _season(alike_L: Array, *, least: float, begin: int) -> int:
    lags = range(begin, len(alike_L) - 1)
    peaks = [lag for lag in lags if alike_L[lag - 1] < alike_L[lag] >= alike_L[lag + 1] and _stands_out(alike_L, lag)]
    highest = max((alike_L[lag] for lag in peaks), default=0.0)
    if highest < least:
        return 1
    # A little below the highest is enough for a lag that comes back at its multiples: a day, not two of them.
    again = 0.9 * _recurring(alike_L, next(lag for lag in peaks if alike_L[lag] >= highest))
    enough = {lag: 0.8 if _recurring(alike_L, lag) >= again else 0.9 for lag in peaks}
    return next(lag for lag in peaks if alike_L[lag] >= enough[lag] * highest)


def _exactly(alike_L: Array, first: int) -> int:
    """A lag that is off by one is off by more at its multiples."""
    near = [lag for lag in range(max(2, round(0.8 * first)), round(1.25 * first) + 1) if lag < len(alike_L)]
    times = _multiples(alike_L, near[-1])
    return max(near, key=lambda lag: _recurring(alike_L, lag, times=times))


def _stands_out(alike_L: Array, lag: int) -> bool:
    """Whether there is a valley before and behind: what falls slowly, with a little noise on it, has no season."""
    sides = alike_L[lag // 2 : lag], alike_L[lag + 1 : 2 * lag]
    return all(side.min() <= 0.5 * alike_L[lag] for side in sides)


def _multiples(alike_L: Array, lag: int) -> int:
    return max(1, min(8, (len(alike_L) - 1) // lag))


def _recurring(alike_L: Array, lag: int, *, times: int | None = None) -> float:
    """The mean likeness at the multiples of a lag."""
    return float(alike_L[lag : (times or _multiples(alike_L, lag)) * lag + 1 : lag].mean())


def _naive_error(series: Sequence[Array], period: int) -> tuple[float, ...]:
    """0 where a channel repeats itself exactly, or never shows two values a period apart: then there is no MASE."""
    total_C = np.zeros(series[0].shape[1])
    count_C = np.zeros_like(total_C)
    for values_TC in series:
        apart_TC = np.abs(values_TC[period:] - values_TC[:-period])
        total_C += np.nansum(apart_TC, axis=0)
        count_C += (~np.isnan(apart_TC)).sum(0)
    return tuple((total_C / np.maximum(count_C, 1)).tolist())

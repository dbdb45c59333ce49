"""Beyond the end of a series, and inside its holes: those of the data, and those that are cut to measure the error.

B batch, L context, H horizon, C channels, Q levels.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.data import Series, Span, next_times
from statewise.models import Forecaster, Past
from statewise.specs import ForecastingSpec, SquaredSpec, UserError, setting
from statewise.tasks.forecasting.evaluation import levels_of, sampled
from statewise.tasks.forecasting.examples import as_read, carried, refuse_other_columns
from statewise.tasks.forecasting.known import Known

Array = NDArray[np.float64]


class Ahead(NamedTuple):
    """A continuation, in the data's own units; a quantile that the model cannot give is NaN."""

    time_H: NDArray[Any]
    mean_HC: Array
    quantile_HCQ: Array
    levels: tuple[float, ...]
    covariates_HX: Array  # of the file


def last_seen(series: Series) -> int:
    """Rows up to the last one that has a value: what follows (covariates alone) is the future."""
    seen_T = ~np.isnan(series.values_TC).all(1)
    return int(np.flatnonzero(seen_T)[-1]) + 1 if seen_T.any() else len(series)


def extended(series: Series, origin: int, horizon: int) -> Series:
    """The series with at least `horizon` rows after `origin`. Covariates of the future are those of the file."""
    lacking = origin + horizon - len(series)
    if lacking <= 0:
        return series
    if series.covariates:
        left = horizon - lacking
        shorter = f", or ask for a shorter horizon: {setting('forecast.horizon', left)}" if left > 0 else ""
        raise UserError(
            f"{series.where or 'the series'}, series {series.id!r}: to forecast {horizon} time steps, the covariates "
            f"{', '.join(series.covariates)} must be known for all of them, but {lacking} are not",
            fix=f"append {lacking} rows with times and covariates and empty targets{shorter}",
        )
    columns = series.values_TC.shape[1]
    return replace(
        series,
        time_T=np.concatenate([series.time_T, next_times(series.time_T, lacking, series.where or series.id)]),
        values_TC=np.concatenate([series.values_TC, np.full((lacking, columns), np.nan)]),
        covariates_TX=np.concatenate([series.covariates_TX, np.zeros((lacking, 0))]),
    )


def go_on(
    model: Forecaster,
    spec: ForecastingSpec,
    known: Known,
    series: Series,
    *,
    origin: int,
    horizon: int,
    levels: Sequence[float],
    device: torch.device,
    draw: int | None = None,
) -> Ahead:
    """`horizon` time steps from row `origin` on, whatever the horizon that was trained.

    With the seed `draw`, one future by chance stands for the mean, where the model can feed a draw back to itself.
    """
    refuse_other_columns(series, known.channels, known.covariates)
    known = known.with_series([(series, origin)])
    asked = -(-horizon // model.at_once) * model.at_once  # a direct model reads the covariates of all it answers
    series = extended(series, origin, asked)
    read = as_read(series, spec.data, known)
    if np.isnan(read.covariates_TX[: origin + asked]).any():
        row, column = np.argwhere(np.isnan(read.covariates_TX[: origin + asked]))[0]
        raise UserError(
            f"{series.where or series.id!r}: covariate {read.covariates[column]!r} is missing at {series.time_T[row]}",
            fix="fill it in, or choose missing = forward",
        )
    context = spec.forecast.context if isinstance(spec.forecast.context, int) else max(1, origin)
    begin = max(0, origin - context)
    values_LC, covariates_TX = read.values_TC[begin:origin], read.covariates_TX[begin : origin + asked]
    lacking = context - (origin - begin)
    if lacking:  # a series shorter than the context: before its beginning nothing was observed
        values_LC = np.concatenate([np.full((lacking, values_LC.shape[1]), np.nan), values_LC])
        covariates_TX = np.concatenate([np.repeat(covariates_TX[:1], lacking, 0), covariates_TX])
    past = _past(values_LC, covariates_TX, shared=spec.data.channels == "shared", device=device)
    possible = levels_of(spec, levels) if draw is None else ()
    futures = spec.forecast.mode == "recursive" and not isinstance(spec.objective, SquaredSpec)
    forecast = model.forecast(
        past,
        horizon=horizon,
        levels=possible,
        paths=sampled(spec) if draw is None else int(futures),
        generator=torch.Generator(device).manual_seed(spec.seed if draw is None else draw),
    )
    drawn_SBHC = forecast.draws_SBHC if draw is not None else None
    mean_BHC = (forecast.mean_BHC if drawn_SBHC is None else drawn_SBHC[0]).double().cpu().numpy()
    quantile_BHCQ = forecast.quantile_BHCQ.double().cpu().numpy()
    if spec.data.channels == "shared":  # rows are channels
        mean_HC, quantile_HCQ = mean_BHC[:, :, 0].T, quantile_BHCQ[:, :, 0].swapaxes(0, 1)
    else:
        mean_HC, quantile_HCQ = mean_BHC[0], quantile_BHCQ[0]
    scaling = known.scaling_for(series)
    own = np.moveaxis(scaling.location(np.moveaxis(quantile_HCQ, -1, 0)), 0, -1)
    return Ahead(
        series.time_T[origin : origin + horizon],
        scaling.location(mean_HC),
        own,
        possible,
        series.covariates_TX[origin : origin + horizon],
    )


def _past(values_LC: Array, covariates_TX: Array, *, shared: bool, device: torch.device) -> Past:
    values_BLC = torch.from_numpy(values_LC.T[:, :, None].copy() if shared else values_LC[None]).float()
    observed_BLC = ~values_BLC.isnan()
    covariates_BTX = torch.from_numpy(covariates_TX).float()[None].expand(len(values_BLC), -1, -1)
    filled_BLC = carried(values_BLC.nan_to_num(), observed_BLC)
    return Past(filled_BLC.to(device), observed_BLC.to(device), covariates_BTX.to(device))


def fill(
    model: Forecaster, spec: ForecastingSpec, known: Known, series: Series, *, device: torch.device
) -> tuple[Array, Array]:
    """Holes between known values: `[T, C]` with them filled, and the same by forecasts alone.

    A forecast goes forward from before the hole. At its far end the truth is known again, and by how much the forecast
    misses it is taken back in proportion to the way: a bridge. What is missing before the first value stays so.
    """
    refuse_other_columns(series, known.channels, known.covariates)
    bridged, forward = series.values_TC.copy(), series.values_TC.copy()
    end = last_seen(series)
    missing_T = np.asarray(np.isnan(series.values_TC[:end]).any(1))
    seen = np.flatnonzero(~np.isnan(series.values_TC).all(1))
    at = int(seen[0]) + 1 if len(seen) else end
    while at < end:
        if not missing_T[at]:
            at += 1
            continue
        until = at
        while until < end and missing_T[until]:
            until += 1
        reach = min(until + 1, end)
        ahead = go_on(
            model,
            spec,
            known,
            replace(series, values_TC=bridged),
            origin=at,
            horizon=reach - at,
            levels=(),
            device=device,
        ).mean_HC
        place = np.arange(at, reach)
        for channel in range(bridged.shape[1]):
            truth = series.values_TC[at:reach, channel]
            hole = np.isnan(truth) & (np.arange(at, reach) < until)
            known_at = place[~np.isnan(truth)]
            off = np.interp(
                place, [at - 1, *known_at], [0.0, *(truth[~np.isnan(truth)] - ahead[~np.isnan(truth), channel])]
            )
            # Nothing known follows in this channel: there is no far end, only a forecast.
            forward[place[hole], channel] = ahead[hole, channel]
            bridged[place[hole], channel] = ahead[hole, channel] + off[hole]
        at = until
    return bridged, forward


class Interpolation(NamedTuple):
    """Mean squared errors of filling holes of `gap` time steps, in units of the training part's deviation."""

    gap: int
    holes: int
    bridge: float  # forecast from before, and what it misses at the far end taken back along the way
    forecast: float  # from before alone: extrapolation
    line: float  # straight from one side to the other
    last: float  # the last value stays


def filled_holes(
    model: Forecaster,
    spec: ForecastingSpec,
    known: Known,
    spans: Sequence[Span],
    *,
    gap: int,
    holes: int,
    device: torch.device,
) -> Interpolation:
    """Of spans as they were measured."""
    context = spec.forecast.context if isinstance(spec.forecast.context, int) else 2 * gap
    sums, count, made = np.zeros(4), 0, 0
    for span in spans:
        first, last = max(span.begin, span.reach + context), span.end - gap - 1
        if last < first:
            continue
        origins = np.unique(np.linspace(first, last, max(1, holes // len(spans))).astype(int))
        for origin in origins:
            lowest = max(span.reach, origin - context)
            some = slice(lowest, origin + gap + 1 + model.at_once)
            series = replace(
                span.series,
                time_T=span.series.time_T[some],
                values_TC=span.series.values_TC[some].copy(),
                covariates_TX=span.series.covariates_TX[some],
            )
            hole = slice(origin - lowest, origin - lowest + gap)
            truth_TC = series.values_TC[hole].copy()
            series.values_TC[hole] = np.nan
            before, after = series.values_TC[hole.start - 1], series.values_TC[hole.stop]
            if np.isnan(truth_TC).any() or np.isnan(before).any() or np.isnan(after).any():
                continue
            bridged, forward = fill(model, spec, known, series, device=device)
            way = (np.arange(1, gap + 1) / (gap + 1))[:, None]
            guesses = (bridged[hole], forward[hole], before + way * (after - before), np.tile(before, (gap, 1)))
            std_C = np.array(known.scaling_for(series).std_C)
            sums += [float((((guess - truth_TC) / std_C) ** 2).sum()) for guess in guesses]
            count += truth_TC.size
            made += 1
    if not count:
        raise UserError(f"no stretch of {gap + 2} time steps without a missing value was held out", fix="lower gap")
    return Interpolation(gap, made, *(sums / count).tolist())

"""Holes cut into what was held out, filled, and compared with what had stood there."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from statewise.data import Span
from statewise.models import Forecaster
from statewise.specs import ForecastingSpec, UserError
from statewise.tasks.forecasting.ahead import fill
from statewise.tasks.forecasting.known import Known


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

"""From files to what a forecaster reads: parts, scale, batches.

B batch, L context, H horizon, T context and horizon together, C channels, X covariates.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import onto
from statewise.data import (
    Missing,
    Series,
    SeriesBatch,
    SeriesParts,
    make_series,
    read_series,
    split_as_filed,
    split_by_files,
    split_last,
    split_rows,
    split_whole,
    with_time_features,
    without_missing,
)
from statewise.data.embedded import embedded_series
from statewise.models import Past
from statewise.specs import SeriesDataSpec, UserError
from statewise.tasks.forecasting.known import Array, Known

_SHARES = "0.7/0.1/0.2"
_FARTHEST = 1e15  # deviations: its square is still a number of 32 bits


class Prepared(NamedTuple):
    """A batch ready for a model. Targets that are missing are NaN."""

    past: Past
    target_BHC: Tensor

    def to(self, device: torch.device) -> "Prepared":
        return Prepared(Past(*(onto(device, part) for part in self.past)), onto(device, self.target_BHC))

    def rows(self, some: slice) -> "Prepared":
        return Prepared(Past(*(part[some] for part in self.past)), self.target_BHC[some])


def prepare(batch: SeriesBatch) -> Prepared:
    """Context and horizon apart; in the context, what is missing is what was seen last (or, before that, first)."""
    context = batch.context
    values_BLC, observed_BLC = batch.values_BTC[:, :context], batch.observed_BTC[:, :context]
    target_BHC = batch.values_BTC[:, context:]
    if not bool(batch.observed_BTC.all()):
        values_BLC = carried(values_BLC, observed_BLC)
        target_BHC = target_BHC.masked_fill(~batch.observed_BTC[:, context:], torch.nan)
    return Prepared(Past(values_BLC, observed_BLC, batch.covariates_BTX), target_BHC)


def carried(values_BTC: Tensor, observed_BTC: Tensor) -> Tensor:
    """Each missing value becomes the last one before it, at the beginning the first one after; 0 if there is none."""
    place_BTC = torch.arange(values_BTC.shape[1], device=values_BTC.device)[None, :, None].expand_as(observed_BTC)
    last_BTC = torch.where(observed_BTC, place_BTC, -1).cummax(1).values
    first_B1C = observed_BTC.to(torch.int8).argmax(1, keepdim=True)
    return values_BTC.gather(1, torch.where(last_BTC < 0, first_B1C, last_BTC))


# -------------------------------------------------------------------- reading


def read_files(spec: SeriesDataSpec, paths: str | Path | Sequence[str | Path]) -> list[Series]:
    return read_series(paths, **spec.subset(*spec.layout_of_files, "targets", "covariates", "missing"))


def series_in(arrays: Sequence[NDArray[Any]], channels: Sequence[str], *, missing: Missing) -> list[Series]:
    """Arrays [T] or [T, C] in memory, with these channels."""
    for number, values in enumerate(arrays):
        if (1 if values.ndim == 1 else values.shape[1]) != len(channels):
            raise UserError(
                f"series {number} has shape {list(values.shape)}, but this run forecasts {len(channels)} channels: "
                f"{', '.join(channels)}",
                fix=f"give arrays of shape [T, {len(channels)}]",
            )
    # The arrays of a list are known by their number, as those of a file are; an array alone is no certain series.
    names = ["series"] if len(arrays) == 1 else map(str, range(len(arrays)))
    made = [make_series(values, id=name, channels=channels) for name, values in zip(names, arrays)]
    return [without_missing(series, missing) for series in made]


def read_parts(spec: SeriesDataSpec, *, seed: int = 0) -> SeriesParts:
    """What is learned from, what decides on weights, and what the final figures are of, as they were measured."""
    if not spec.train:
        if spec.validation or spec.test or spec.targets or spec.covariates or spec.id:
            raise UserError("the embedded series has no files and no columns to choose", fix="name data.train")
        parts = split_rows(
            [embedded_series(spec.series, length=spec.length)], _SHARES if spec.split == "auto" else spec.split
        )
    else:
        train = read_files(spec, spec.train)
        if spec.validation:
            held, test = read_files(spec, spec.validation), read_files(spec, spec.test) if spec.test else []
            parts = split_by_files(train, held, test)
        elif spec.test:
            parts = _split(train, "0.9/0.1" if spec.split == "auto" else spec.split, seed)
            if parts.test:
                raise UserError(
                    f"data.split = {spec.split!r} has a third part, but data.test names files", fix="give two parts"
                )
            parts = parts._replace(test=split_by_files(read_files(spec, spec.test)).train)
        else:
            filed = any(series_.part for series_ in train)
            parts = _split(train, ("filed" if filed else _SHARES) if spec.split == "auto" else spec.split, seed)
        _check_columns(parts)
    if not parts.validation:
        raise UserError(
            f"{', '.join(spec.train) or 'the embedded series'}: nothing is held out to decide which weights are kept",
            fix="give more rows, or data.split a second part, or name data.validation",
        )
    return parts


def _split(series: Sequence[Series], split: str, seed: int) -> SeriesParts:
    if split == "filed":
        return split_as_filed(series)
    if split.startswith("last:"):
        return split_last(series, split.removeprefix("last:"))
    if split.startswith("whole:"):
        return split_whole(series, split.removeprefix("whole:"), seed=seed)
    return split_rows(series, split)


def _check_columns(parts: SeriesParts) -> None:
    first = parts.train[0].series
    for span in (*parts.validation, *parts.test):
        refuse_other_columns(span.series, first.channels, first.covariates)


def refuse_other_columns(series: Series, channels: Sequence[str], covariates: Sequence[str]) -> None:
    if (series.channels, series.covariates) != (tuple(channels), tuple(covariates)):
        raise UserError(
            f"{series.where or series.id!r} has {_shown([*series.channels, *series.covariates])}, "
            f"but training had {_shown([*channels, *covariates])}",
            fix="name the same columns: data.targets, data.covariates",
        )


def _shown(columns: Sequence[str]) -> str:
    """`128 columns: channel 0, channel 1, channel 2, …`"""
    more = ", …" if len(columns) > 6 else ""
    return f"{len(columns)} columns: {', '.join(columns[:6])}{more}"


def as_read(series: Series, spec: SeriesDataSpec, known: Known) -> Series:
    """Scaled, with time as an input where that is wanted."""
    refuse_other_columns(series, known.channels, known.covariates)
    scaled = known.scaled(series)
    _refuse_far(scaled.values_TC, series.values_TC, series.channels, series)
    _refuse_far(scaled.covariates_TX, series.covariates_TX, series.covariates, series)
    return with_time_features(scaled, spec.time_features, until=known.until)


def _refuse_far(read_TC: Array, given_TC: Array, names: Sequence[str], series: Series) -> None:
    """A value that would be infinite in 32 bits, or its square."""
    far = np.argwhere(np.abs(read_TC) > _FARTHEST)
    if len(far):
        row, column = far[0]
        raise UserError(
            f"{series.where or 'the series'}, series {series.id!r}: {names[column]!r} is {given_TC[row, column]:g} at "
            f"{series.time_T[row]}, {abs(read_TC[row, column]):.1g} deviations from the mean of the training part",
            fix="check its unit, or leave the cell empty",
        )

"""Forecasts in the form of what they continue: an array, a tensor, a frame with its own columns; and as rows.

T time, H horizon, C channels.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.data import Data, Series, array_of, frame_like, lists_series, series_table
from statewise.specs import SeriesDataSpec
from statewise.tasks.forecasting import write
from statewise.tasks.forecasting.ahead import Ahead, last_seen
from statewise.tasks.forecasting.known import Known


def rows_ahead(series: Series, ahead: Ahead) -> Iterator[dict[str, Any]]:
    """A dict for every time step and channel of a forecast."""
    for step, moment in enumerate(ahead.time_H):
        for channel, name in enumerate(series.channels):
            levels = enumerate(ahead.levels)
            quantiles = {f"{q:g}": write.number(ahead.quantile_HCQ[step, channel, at]) for at, q in levels}
            yield {
                "series": series.id,
                "time": write.moment_of(moment),
                "channel": name,
                "step": step + 1,
                "mean": float(ahead.mean_HC[step, channel]),
                "quantiles": quantiles or None,
            }


def rows_filled(
    series: Series, filled_TC: NDArray[np.float64], forward_TC: NDArray[np.float64]
) -> Iterator[dict[str, Any]]:
    """A dict for every missing value: filled from both sides, and by a forecast from before alone."""
    for row, channel in np.argwhere(np.isnan(series.values_TC[: last_seen(series)])):
        yield {
            "series": series.id,
            "time": write.moment_of(series.time_T[row]),
            "channel": series.channels[channel],
            "mean": write.number(filled_TC[row, channel]),
            "forecast": write.number(forward_TC[row, channel]),
        }


def array_like(data: Data, means: Sequence[NDArray[np.float64]]) -> Any:
    """The forecasts `[H, C]` of all series with as many axes as `data`; a tensor for a tensor, a list for a list."""
    if lists_series(data):
        return [array_like(item, [mean]) for item, mean in zip(data, means, strict=True)]
    given = array_of(data)
    assert given is not None, "series_arrays found numbers"
    found = np.stack(means) if given.ndim == 3 else means[0][:, 0] if given.ndim == 1 else means[0]
    if not isinstance(data, torch.Tensor):
        return found
    kind = data.dtype if data.is_floating_point() else torch.get_default_dtype()
    return torch.as_tensor(found, dtype=kind, device=data.device)


def frame_ahead(
    data: Data, file: str, forecasts: Sequence[tuple[Series, Ahead]], *, spec: SeriesDataSpec, known: Known
) -> Any:
    """The rows that come next, as the same kind of object; `file` is the table that was made of `data`.

    It has the columns of the time, the id, the channels and the covariates, in the order of `data`.
    """
    table = write.table_of(file, spec)
    assert table is not None, "arrays are answered by arrays"
    time, id_ = write.special_columns(table, spec)
    columns: dict[str, Any] = {}
    if time is not None:
        moments = np.concatenate([ahead.time_H for _, ahead in forecasts])
        own = series_table(spec, data)
        assert own is not None, "it was written to the file"
        columns[time] = _times(moments, own.columns[time][0], table.cells(time))
    if id_ is not None:
        columns[id_] = [series.id for series, ahead in forecasts for _ in ahead.time_H]
    for at, name in enumerate(known.channels):
        columns[name] = np.concatenate([ahead.mean_HC[:, at] for _, ahead in forecasts])
    for at, name in enumerate(known.covariates):
        columns[name] = np.concatenate([ahead.covariates_HX[:, at] for _, ahead in forecasts])
    return frame_like(data, {name: columns[name] for name in table.columns if name in columns})


def _times(moments: NDArray[Any], like: Any, cells: Sequence[str]) -> Any:
    """Times of the kind that the column has: strings in its style, dates in its zone, or numbers."""
    if isinstance(like, str):
        return [write.written(moment, cells) for moment in moments]
    if isinstance(like, datetime) and like.tzinfo is not None:
        return [moment.replace(tzinfo=UTC).astimezone(like.tzinfo) for moment in moments.tolist()]
    return moments.astype(np.int64) if isinstance(like, int) else moments

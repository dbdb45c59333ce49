"""What it costs a recursive forecaster to read its own forecasts.

B batch, T time, C channels, D features.
"""

import numpy as np
import torch
from torch import Tensor

from statewise.data import Span, series_rows
from statewise.models import Past, RecursiveForecaster
from statewise.specs import ForecastingSpec, UserError
from statewise.tasks.forecasting.examples import Prepared, prepare
from statewise.tasks.forecasting.job import as_prepared, as_sequence, cut, evaluation_windows
from statewise.training import ExposureGap, exposure_gap, feed_values


def gap_windows(spec: ForecastingSpec, spans: tuple[Span, ...], *, rows: int) -> tuple[Prepared, Tensor | None]:
    """About `rows` windows, or as many whole series with their lengths, spread evenly and without missing values."""
    if rows < 1:
        raise UserError(f"rows = {rows}, expected at least 1")
    context = spec.forecast.context
    if isinstance(context, str):
        whole = [one for one in map(cut, spans) if len(one) > 1 and not np.isnan(one.values_TC).any()]
        _refuse_none(len(whole))
        chosen = np.unique(np.linspace(0, len(whole) - 1, min(rows, len(whole))).astype(int))
        found = series_rows([whole[i] for i in chosen])
        return as_prepared(found), found.lengths_B
    every = [prepare(batch) for batch in evaluation_windows(spec, spans, most=rows * (context + spec.forecast.horizon))]
    past = Past(*(torch.cat(parts) for parts in zip(*(window.past for window in every), strict=True)))
    prepared = Prepared(past, torch.cat([window.target_BHC for window in every]))
    complete_B = past.observed_BLC.flatten(1).all(1) & ~prepared.target_BHC.flatten(1).isnan().any(1)
    _refuse_none(int(complete_B.sum()))
    return Prepared(Past(*(part[complete_B] for part in past)), prepared.target_BHC[complete_B]), None


def _refuse_none(count: int) -> None:
    if not count:
        raise UserError("every stretch that was held out lacks a value", fix="name other data, or fill them in")


def forecast_gap(
    model: RecursiveForecaster,
    prepared: Prepared,
    lengths_B: Tensor | None,
    *,
    context: int,
    sample: bool,
    device: torch.device,
    seed: int,
) -> ExposureGap:
    """The head's own loss of every next value, in the mean over channels."""
    x_BTI, all_BTC, _ = as_sequence(model, prepared.to(device))
    generator = torch.Generator(device).manual_seed(seed)

    def score(outputs_BTD: Tensor, next_BTC: Tensor) -> Tensor:
        params, shift = model.distribution(outputs_BTD)
        loss = model.head.nats(params, next_BTC - shift)
        return loss.mean(-1) if loss.dim() == next_BTC.dim() else loss

    return exposure_gap(
        model.machine,
        x_BTI,
        all_BTC[:, 1:],
        prefix=min(context, x_BTI.shape[1]),
        lengths_B=None if lengths_B is None else (lengths_B - 1).to(device),
        feedback=feed_values(lambda output, uniform: model.fed(output, sample=sample, generator=generator)),
        score=score,
        seed=seed,
    )

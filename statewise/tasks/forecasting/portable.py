"""A forecaster as graphs: the whole horizon at once, or a step and the value that it gives.

B batch, L context, H horizon, C channels, D features.
"""

from typing import Any

import torch
from torch import Tensor, nn

from statewise.models import DirectForecaster, Forecaster, Past, RecursiveForecaster, longest_context
from statewise.specs import ForecastingSpec, UserError
from statewise.tasks.forecasting.evaluation import sampled
from statewise.tasks.forecasting.known import Known
from statewise.tasks.portable import Axes, Portable, Whole

_ROWS: Axes = {0: "batch"}


class _Means(nn.Module):
    """Values of a context to the means of all that follows."""

    def __init__(self, model: DirectForecaster) -> None:
        super().__init__()
        self.model = model

    def forward(self, values_BLC: Tensor) -> tuple[Tensor]:
        time = self.model.context + self.model.horizon
        nothing_BTX = values_BLC.new_zeros(values_BLC.shape[0], time, 0)
        params, shift_BHC = self.model(Past(values_BLC, torch.ones_like(values_BLC, dtype=torch.bool), nothing_BTX))
        return (self.model.head.mean(params).view(shift_BHC.shape) + shift_BHC,)


class _Mean(nn.Module):
    """An output of the machine to the mean of the next value."""

    def __init__(self, model: RecursiveForecaster) -> None:
        super().__init__()
        self.model = model

    def forward(self, y_BD: Tensor) -> tuple[Tensor]:
        params, shift = self.model.distribution(y_BD)
        return (self.model.head.mean(params) + shift,)


def portable(model: Forecaster, spec: ForecastingSpec, known: Known) -> Portable:
    if known.covariates or spec.data.time_features:
        raise UserError("a forecaster that reads covariates or the time cannot be exported", fix="train without them")
    if sampled(spec):
        raise UserError(
            f"this run forecasts by {spec.forecast.paths} futures that PyTorch's random numbers choose",
            fix="forecast.mode = 'direct' or objective.kind = 'squared' can be exported",
        )
    settings: dict[str, Any] = {
        "channels": list(known.channels),
        "context": spec.forecast.context,
        "horizon": spec.forecast.horizon,
        "shared": spec.data.channels == "shared",
        "scaling": known.scaling.to_json(),
        "scaling_of": {name: scaling.to_json() for name, scaling in known.scaling_of.items()},
    }
    if isinstance(model, DirectForecaster):
        shape = (model.context, model.channels)
        whole = Whole(
            "forecast",
            _Means(model),
            inputs=[("values", _ROWS)],
            outputs=[("mean", _ROWS)],
            sample=lambda rows, time, generator: (torch.randn(rows, *shape, generator=generator),),
        )
        return Portable(settings, {}, whole=whole)
    assert isinstance(model, RecursiveForecaster)
    settings |= {"gaps": model.gaps, "bits": spec.objective.of_bits, "longest": longest_context(model)}
    with torch.no_grad():
        y_BTD, _ = model.machine(model.machine.sample_input(1, 1, generator=torch.Generator().manual_seed(0)))
    width = y_BTD.shape[-1]
    whole = Whole(
        "value",
        _Mean(model),
        inputs=[("output", _ROWS)],
        outputs=[("mean", _ROWS)],
        sample=lambda rows, time, generator: (torch.randn(rows, width, generator=generator),),
    )
    return Portable(settings, {}, machine=model.machine, start=model.machine.init_state(1), whole=whole)

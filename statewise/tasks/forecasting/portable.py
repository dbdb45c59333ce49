"""A forecaster as graphs: the whole horizon at once, or a step and the value that it gives.

B batch, L context, H horizon, C channels, D features.
"""

from typing import Any

import torch
from torch import Tensor, nn

from statewise.models import DirectForecaster, Forecaster, Past, RecursiveForecaster, longest_context
from statewise.specs import ForecastingSpec, SquaredSpec
from statewise.tasks.forecasting.evaluation import sampled
from statewise.tasks.forecasting.known import Known
from statewise.tasks.portable import Axes, Portable, Whole

_ROWS: Axes = {0: "batch"}


class _Means(nn.Module):
    """A context to the means of all that follows; what else it reads, are marks of what was observed and covariates."""

    def __init__(self, model: DirectForecaster, *, covariates: int) -> None:
        super().__init__()
        self.model, self.covariates = model, covariates

    def forward(self, values_BLC: Tensor, *more: Tensor) -> tuple[Tensor]:
        model, time = self.model, self.model.context + self.model.horizon
        observed_BLC = more[0] if model.gaps else torch.ones_like(values_BLC)
        covariates_BTX = more[-1] if self.covariates else values_BLC.new_zeros(values_BLC.shape[0], time, 0)
        params, shift_BHC = model(Past(values_BLC, observed_BLC, covariates_BTX))
        return (model.head.mean(params).view(shift_BHC.shape) + shift_BHC,)


class _Value(nn.Module):
    """An output of the machine to the mean of the next value, and to a sample of it out of two numbers in [0, 1)."""

    def __init__(self, model: RecursiveForecaster, *, certain: bool) -> None:
        super().__init__()
        self.model, self.certain = model, certain

    def forward(self, y_BD: Tensor, *uniform: Tensor) -> tuple[Tensor, ...]:
        params, shift = self.model.distribution(y_BD)
        mean = self.model.head.mean(params) + shift
        return (mean,) if self.certain else (mean, self.model.drawn(y_BD, *uniform))


def portable(model: Forecaster, spec: ForecastingSpec, known: Known) -> Portable:
    settings: dict[str, Any] = {
        "channels": list(known.channels),
        "covariates": list(known.covariates),
        "covariate_mean": list(known.covariate_mean_X),
        "covariate_std": list(known.covariate_std_X),
        "time_features": list(spec.data.time_features),
        "until": known.until,
        "context": spec.forecast.context,
        "horizon": spec.forecast.horizon,
        "paths": sampled(spec),
        "seed": spec.seed,
        "missing": spec.data.missing,
        "gaps": known.gaps,
        "shared": spec.data.channels == "shared",
        "scaling": known.scaling.to_json(),
        "scaling_of": {name: scaling.to_json() for name, scaling in known.scaling_of.items()},
    }
    if isinstance(model, DirectForecaster):
        past, time = (model.context, model.channels), model.context + model.horizon
        width = len(known.covariates) + len(spec.data.time_features)

        def context(rows: int, _: int, generator: torch.Generator) -> tuple[Tensor, ...]:
            made = [torch.randn(rows, *past, generator=generator)]
            made += [(torch.rand(rows, *past, generator=generator) < 0.9).float()] if model.gaps else []
            return (*made, torch.randn(rows, time, width, generator=generator)) if width else tuple(made)

        names = ["values", *(["observed"] if model.gaps else []), *(["covariates"] if width else [])]
        whole = Whole(
            "forecast",
            _Means(model, covariates=width),
            inputs=[(name, _ROWS) for name in names],
            outputs=[("mean", _ROWS)],
            sample=context,
        )
        return Portable(settings, {}, whole=whole)
    assert isinstance(model, RecursiveForecaster)
    certain = isinstance(spec.objective, SquaredSpec)
    settings |= {"certain": certain, "bits": spec.objective.of_bits, "longest": longest_context(model)}
    with torch.no_grad():
        y_BTD, _ = model.machine(model.machine.sample_input(1, 1, generator=torch.Generator().manual_seed(0)))
    width = y_BTD.shape[-1]

    def sample(rows: int, _: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        y_BD = torch.randn(rows, width, generator=generator)
        uniform_BC2 = torch.rand(rows, model.channels, 2, dtype=torch.float64, generator=generator)
        return (y_BD,) if certain else (y_BD, uniform_BC2)

    whole = Whole(
        "value",
        _Value(model, certain=certain),
        inputs=[("output", _ROWS), ("uniform", _ROWS)][: 1 if certain else 2],
        outputs=[("mean", _ROWS), ("drawn", _ROWS)][: 1 if certain else 2],
        sample=sample,
    )
    return Portable(settings, {}, machine=model.machine, start=model.machine.init_state(1), whole=whole)

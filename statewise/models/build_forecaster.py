"""From a spec to a forecaster: any model of the lineage, any head, direct or recursive."""

from typing import Any, assert_never

import torch
from torch import nn

from statewise.layers import Dropout, make_linear
from statewise.models.build import build_stack
from statewise.models.build_reader import build_reader
from statewise.models.forecaster import DirectForecaster, Forecaster, RecursiveForecaster, ValueMachine
from statewise.models.head import BernoulliHead, RealHead
from statewise.models.real_head import GaussianHead, PointHead, QuantileHead, StudentHead
from statewise.specs import (
    BernoulliSpec,
    ForecastingSpec,
    GaussianSpec,
    MixerSpec,
    QuantileSpec,
    RealObjectiveSpec,
    SquaredSpec,
    StudentSpec,
)


def build_forecaster(
    spec: ForecastingSpec, *, channels: int, covariates: int = 0, gaps: bool = False, seed: int = 0
) -> Forecaster:
    """`channels` of one row (1 where all channels share a model); `gaps`: values may be missing, and are marked so."""
    generator = torch.Generator().manual_seed(seed)
    width = channels * (2 if gaps else 1) + covariates
    # Values enter as they are: most layers begin with a linear map of their own. `embedding` puts one before them.
    entry_width = spec.model.embedding or width
    entry: nn.Module = nn.Identity()
    if spec.model.embedding is not None:
        entry = make_linear(width, entry_width, generator=generator)
    forecast = spec.forecast
    if forecast.mode == "recursive":
        machine, features = _machine(
            spec.model,
            width=width,
            entry=entry,
            entry_width=entry_width,
            passed=channels if forecast.anchor == "last" else 0,
            generator=generator,
        )
        return RecursiveForecaster(
            machine=machine,
            head=_head(spec.objective, width=features, channels=channels, generator=generator),
            channels=channels,
            gaps=gaps,
        )
    assert isinstance(forecast.context, int)
    reader = build_reader(
        spec.model,
        entry=entry,
        entry_width=entry_width,
        **dict(spec.reader),
        generator=generator,
    )
    skip = None
    if forecast.skip:
        skip = make_linear(forecast.context, forecast.horizon, generator=generator)
        nn.init.zeros_(skip.weight)
    head = _head(
        spec.objective,
        width=reader.width + forecast.horizon * covariates,
        channels=forecast.horizon * channels,
        generator=generator,
    )
    assert isinstance(head, RealHead)
    return DirectForecaster(
        reader=reader,
        head=head,
        context=forecast.context,
        horizon=forecast.horizon,
        channels=channels,
        gaps=gaps,
        anchor=forecast.anchor == "last",
        skip=skip,
    )


def _machine(
    spec: MixerSpec, *, width: int, entry: nn.Module, entry_width: int, passed: int, generator: torch.Generator
) -> tuple[ValueMachine, int]:
    wanted = spec.reader_input(bidirectional=False) or entry_width
    if wanted != entry_width:
        entry = nn.Sequential(entry, make_linear(entry_width, wanted, generator=generator))
    stack, features = build_stack(spec, input_width=wanted, generator=generator)
    dropout = Dropout(spec.input_dropout, variational=spec.variational)
    machine = ValueMachine(input_width=width, entry=entry, input_dropout=dropout, stack=stack, passed=passed)
    return machine, features


def _head(
    objective: RealObjectiveSpec, *, width: int, channels: int, generator: torch.Generator
) -> RealHead[Any] | BernoulliHead:
    match objective:
        case SquaredSpec():
            return PointHead(width, channels, generator=generator)
        case GaussianSpec():
            return GaussianHead(width, channels, generator=generator)
        case StudentSpec():
            return StudentHead(width, channels, generator=generator)
        case QuantileSpec():
            return QuantileHead(width, channels, levels=objective.levels, generator=generator)
        case BernoulliSpec():
            return BernoulliHead(width, channels, generator=generator)
        case _:
            assert_never(objective)

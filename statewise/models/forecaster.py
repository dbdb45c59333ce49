"""Models that continue a series: the whole horizon at once, or step by step.

B batch, L context, H horizon, T context and horizon together, C channels, X covariates, I inputs of a time step,
D features, Q levels, S sampled paths.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from statewise.core import Machine, check_input, past_end, rows
from statewise.layers import Dropout
from statewise.models.head import BernoulliHead, RealHead
from statewise.models.reader import Reader
from statewise.models.real_head import Gaussian, Student
from statewise.models.stack import Stack, StackState
from statewise.runtime import future_bits
from statewise.specs import UserError


class Past(NamedTuple):
    """The input of a forecast. Missing values are filled in; covariates reach into the future."""

    values_BLC: Tensor
    observed_BLC: Tensor
    covariates_BTX: Tensor

    @property
    def horizon(self) -> int:
        return self.covariates_BTX.shape[1] - self.values_BLC.shape[1]


class Forecast(NamedTuple):
    mean_BHC: Tensor
    quantile_BHCQ: Tensor  # at the requested levels
    draws_SBHC: Tensor | None = None  # of a recursive model: sampled futures
    parameters: tuple[Tensor, ...] | None = None  # of a distribution in closed form, each [B, H, C]


class Forecaster(nn.Module, ABC):
    """Both kinds have `forecast`; each is trained in its own way."""

    channels: int
    at_once: int  # time steps of one prediction, whose covariates must be known

    @torch.no_grad()
    def forecast(
        self,
        past: Past,
        *,
        horizon: int,
        levels: Sequence[float] = (),
        paths: int = 0,
        seed: int = 0,
        first_row: int = 0,
    ) -> Forecast:
        """`horizon` time steps; `past` must hold the covariates of all of them. No gradient passes.

        A sampled future is a function of the seed, its number and its row, counted from `first_row`.
        """
        return self._forecast(past, horizon, levels, paths, seed, first_row)

    @abstractmethod
    def _forecast(
        self, past: Past, horizon: int, levels: Sequence[float], paths: int, seed: int, first_row: int
    ) -> Forecast: ...


def enters(values: Tensor, observed: Tensor, covariates: Tensor, *, gaps: bool) -> Tensor:
    """Values, whether they were observed (where some are missing), and covariates."""
    parts = [values, observed.to(values), covariates] if gaps else [values, covariates]
    return torch.cat(parts, dim=-1)


# -------------------------------------------------------------------- all at once


@final
class DirectForecaster(Forecaster):
    """From the summary of a context to all time steps of a horizon: `x_{T+1}, …, x_{T+H}` in one step, none fed back.

    `shift` is added to whatever the head gives: the last value of the context (`anchor`, as NLinear of Zeng et al.
    2023 has it), and a linear map from the context, the same for all channels (`skip`).
    """

    def __init__(
        self,
        *,
        reader: Reader,
        head: RealHead[Any],
        context: int,
        horizon: int,
        channels: int,
        gaps: bool,
        anchor: bool,
        skip: nn.Linear | None,
    ) -> None:
        super().__init__()
        self.reader, self.head, self.skip = reader, head, skip
        self.context, self.horizon, self.channels = context, horizon, channels
        self.gaps, self.anchor = gaps, anchor
        self.at_once = horizon

    def forward(self, past: Past) -> tuple[Any, Tensor]:
        """The head's parameters, flat over time steps and channels, and the shift `[B, H, C]` to add."""
        return self.parameters_of(self.reader.summarise(self.inputs(past)), past)

    def inputs(self, past: Past) -> Tensor:
        """The reader's input, `[B, L, I]`."""
        values_BLC, observed_BLC, covariates_BTX = past
        if past.horizon != self.horizon or values_BLC.shape[1] != self.context:
            raise UserError(
                f"a context of {values_BLC.shape[1]} and a horizon of {past.horizon}; "
                f"this model was made for {self.context} and {self.horizon}"
            )
        near_BLC = values_BLC - self._base(past)
        return enters(near_BLC, observed_BLC, covariates_BTX[:, : self.context], gaps=self.gaps)

    def parameters_of(self, summary_BD: Tensor, past: Past) -> tuple[Any, Tensor]:
        """The same from a summary of the context."""
        base_B1C = self._base(past)
        ahead_BX = past.covariates_BTX[:, self.context :].flatten(1)
        params = self.head(torch.cat([summary_BD, ahead_BX.to(summary_BD)], dim=-1))
        shift_BHC = base_B1C.expand(-1, self.horizon, -1)
        if self.skip is not None:
            shift_BHC = shift_BHC + self.skip((past.values_BLC - base_B1C).mT).mT.to(shift_BHC)
        return params, shift_BHC

    def _base(self, past: Past) -> Tensor:
        last_B1C = past.values_BLC[:, -1:]
        return last_B1C if self.anchor else torch.zeros_like(last_B1C)

    def __call__(self, past: Past) -> tuple[Any, Tensor]:
        params, shift_BHC = super().__call__(past)
        return params, shift_BHC

    def _forecast(
        self, past: Past, horizon: int, levels: Sequence[float], paths: int, seed: int, first_row: int
    ) -> Forecast:
        """Beyond the trained horizon it continues from its own mean, without uncertainty."""
        covariates_BTX = _ahead(past.covariates_BTX, 0, self.context + self.horizon)
        params, shift_BHC = self(Past(*past[:2], covariates_BTX[:, : self.context + self.horizon]))
        shape = shift_BHC.shape
        mean_BHC = self.head.mean(params).view(shape) + shift_BHC
        quantiles = [self.head.quantile(params, q).view(shape) + shift_BHC for q in levels]
        quantile_BHCQ = torch.stack(quantiles, -1) if levels else mean_BHC.new_zeros(*shape, 0)
        parameters = _closed_form(params, shift_BHC)
        if horizon <= self.horizon:
            if parameters is not None:
                parameters = tuple(parameter[:, :horizon] for parameter in parameters)
            return Forecast(mean_BHC[:, :horizon], quantile_BHCQ[:, :horizon], None, parameters)
        moved = Past(
            torch.cat([past.values_BLC, mean_BHC], 1)[:, -self.context :],
            torch.cat([past.observed_BLC, torch.ones_like(mean_BHC, dtype=torch.bool)], 1)[:, -self.context :],
            _ahead(past.covariates_BTX, self.horizon, self.context + self.horizon),
        )
        rest = self.forecast(moved, horizon=horizon - self.horizon)
        unknown = quantile_BHCQ.new_full((*rest.mean_BHC.shape, len(levels)), torch.nan)
        return Forecast(torch.cat([mean_BHC, rest.mean_BHC], 1), torch.cat([quantile_BHCQ, unknown], 1))


def _ahead(covariates_BTX: Tensor, by: int, least: int) -> Tensor:
    """Later covariates; where too few are known, the last ones are repeated."""
    later_BTX = covariates_BTX[:, by:]
    lacking = least - later_BTX.shape[1]
    if lacking <= 0:
        return later_BTX
    return torch.cat([later_BTX, later_BTX[:, -1:].expand(-1, lacking, -1)], dim=1)


def _closed_form(params: Any, shift_BHC: Tensor) -> tuple[Tensor, ...] | None:
    match params:
        case Gaussian(mean=mean, scale=scale):
            return mean.view(shift_BHC.shape) + shift_BHC, scale.view(shift_BHC.shape)
        case Student(location=location, scale=scale, freedom=freedom):
            first = location.view(shift_BHC.shape) + shift_BHC
            return first, scale.view(shift_BHC.shape), freedom.view(shift_BHC.shape)
        case _:
            return None


# -------------------------------------------------------------------- one after the other


@final
class ValueMachine(Machine[StackState]):
    """`[B, T, I]` real inputs to features `[B, T, D]`; the first `passed` inputs are appended unchanged."""

    step_axes = 2

    def __init__(
        self, *, input_width: int, entry: nn.Module, input_dropout: Dropout, stack: Stack, passed: int = 0
    ) -> None:
        super().__init__()
        self.input_width, self.passed = input_width, passed
        self.entry, self.input_dropout, self.stack = entry, input_dropout, stack

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        x_BTI = torch.randn(batch, time, self.input_width, dtype=torch.float64, generator=generator)
        return x_BTI.to(self.like)

    def init_state(self, batch: int) -> StackState:
        return self.stack.init_state(batch)

    def forward(
        self, x_BTI: Tensor, state: StackState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, StackState]:
        check_input(x_BTI, lengths_B, width=self.input_width)
        y_BTD, after = self.stack(self.input_dropout(self.entry(x_BTI)), state, lengths_B)
        if self.passed:
            y_BTD = torch.cat([y_BTD.to(x_BTI.dtype), x_BTI[..., : self.passed]], dim=-1)
        return past_end(y_BTD, lengths_B), after

    def step(self, x_BI: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        y_BD, after = self.stack.step(self.input_dropout(self.entry(x_BI)[:, None])[:, 0], state)
        if self.passed:
            y_BD = torch.cat([y_BD.to(x_BI.dtype), x_BI[:, : self.passed]], dim=-1)
        return y_BD, after


@final
class RecursiveForecaster(Forecaster):
    """`x_{t+1}` from all up to t, at every t; beyond the data, its own forecasts are its inputs.

    With `anchor`, the head predicts the change from the last value. The covariates that enter at t are those
    of t + 1, the step to predict.
    """

    def __init__(
        self, *, machine: ValueMachine, head: RealHead[Any] | BernoulliHead, channels: int, gaps: bool
    ) -> None:
        super().__init__()
        self.machine, self.head = machine, head
        self.channels, self.gaps = channels, gaps
        self.at_once = 1

    def inputs(self, values_BTC: Tensor, observed_BTC: Tensor, next_BTX: Tensor) -> Tensor:
        return enters(values_BTC, observed_BTC, next_BTX, gaps=self.gaps)

    def distribution(self, y: Tensor) -> tuple[Any, Tensor | float]:
        """From the machine's output: the head's parameters, and the value to add."""
        if not self.machine.passed:
            return self.head(y), 0.0
        return self.head(y[..., : -self.machine.passed]), y[..., -self.machine.passed :]

    def value(self, y: Tensor, *, sample: bool, generator: torch.Generator | None = None) -> Tensor:
        """One value for each channel to continue with: a sample, or the mean (of bits, the more probable one)."""
        params, shift = self.distribution(y)
        if sample:
            return self.head.sample(params, generator) + shift
        mean = self.head.mean(params)
        return mean.round() if isinstance(self.head, BernoulliHead) else mean + shift

    def drawn(self, y: Tensor, uniform: Tensor) -> Tensor:
        """A sample of it, out of two numbers in [0, 1) for each channel."""
        params, shift = self.distribution(y)
        return self.head.drawn(params, uniform) + shift

    def fed(self, y: Tensor, *, sample: bool, generator: torch.Generator | None = None) -> Tensor:
        """That value as an input, marked as observed."""
        return self._marked(self.value(y, sample=sample, generator=generator))

    def _marked(self, value: Tensor) -> Tensor:
        return torch.cat([value, torch.ones_like(value)], -1) if self.gaps else value

    def _forecast(
        self, past: Past, horizon: int, levels: Sequence[float], paths: int, seed: int, first_row: int
    ) -> Forecast:
        """With `paths`, mean and quantiles of sampled futures; otherwise the mean is fed back."""
        length = past.values_BLC.shape[1]
        next_BTX = _ahead(past.covariates_BTX, 1, length + horizon)
        x_BLI = self.inputs(*past[:2], next_BTX[:, :length])
        outputs_BLD, state = self.machine(x_BLI)
        y_BD, ahead_BHX = outputs_BLD[:, -1], next_BTX[:, length:]
        batch = len(y_BD)
        row_B, path_B = (part.flatten() for part in _grid(batch, paths, device=y_BD.device))
        if paths:
            y_BD, state, ahead_BHX = y_BD[row_B], rows(state, row_B), ahead_BHX[row_B]
        draw_C2 = torch.arange(2 * self.channels, device=y_BD.device).view(self.channels, 2)
        values, first = [], None
        for k in range(horizon):
            if k == 0 or not paths:
                params, shift = self.distribution(y_BD)
                mean = self.head.mean(params) + shift
                first = mean[:batch] if first is None else first
            value = self.value(y_BD, sample=False)
            if paths:
                place_C2 = draw_C2 + k * draw_C2.numel()
                bits = future_bits(seed, first_row + row_B[:, None, None], path_B[:, None, None], place_C2)
                value = self.drawn(y_BD, bits.double() * 2.0**-53)
            values.append(value if paths else mean)
            fed = self._marked(value)
            if k + 1 < horizon:
                y_BD, state = self.machine.step(torch.cat([fed, ahead_BHX[:, k].to(fed)], dim=-1), state)
        values_BHC = torch.stack(values, dim=1)
        if not paths:
            return Forecast(values_BHC, values_BHC.new_zeros(*values_BHC.shape, 0))
        assert first is not None
        draws_SBHC = values_BHC.view(paths, batch, horizon, self.channels)
        mean_BHC = draws_SBHC.mean(0)
        mean_BHC[:, 0] = first  # the first time step needs no samples
        quantile_BHCQ = _quantiles(draws_SBHC, levels)
        return Forecast(mean_BHC, quantile_BHCQ, draws_SBHC)


def _grid(batch: int, paths: int, *, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows and paths, all rows of a path together."""
    row_SB, path_SB = torch.meshgrid(torch.arange(batch), torch.arange(max(1, paths)), indexing="xy")
    return row_SB.to(device), path_SB.to(device)


def _quantiles(draws_S: Tensor, levels: Sequence[float]) -> Tensor:
    """Linear interpolation between sorted samples, as in `torch.quantile`, which refuses large inputs."""
    ordered_S = draws_S.sort(0).values
    quantiles = []
    for q in levels:
        at = q * (len(draws_S) - 1)
        low = min(int(at), len(draws_S) - 2)
        quantiles.append(torch.lerp(ordered_S[low], ordered_S[low + 1], at - low))
    return torch.stack(quantiles, -1) if quantiles else draws_S.new_zeros(*draws_S.shape[1:], 0)

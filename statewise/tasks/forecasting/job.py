"""Series, learnt: windows of them, or each from its beginning.

B batch, L context, H horizon, T context and horizon together, C channels.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from statewise.core import onto
from statewise.data import (
    RaggedBatches,
    RollingOrigin,
    Series,
    SeriesParts,
    SeriesRows,
    SeriesWindows,
    Span,
    series_rows,
)
from statewise.models import (
    DirectForecaster,
    Forecaster,
    Past,
    RecursiveForecaster,
    build_forecaster,
    measured,
    row_flops,
)
from statewise.specs import ForcingSpec, ForecastingSpec, SquaredSpec, TeacherForcing
from statewise.tasks.folder import fingerprint
from statewise.tasks.forecasting.examples import Prepared, as_read, carried, prepare, read_parts
from statewise.tasks.forecasting.known import Known, learn
from statewise.tasks.job import Job, Opening
from statewise.tasks.loss import WeightedSum, real_loss
from statewise.tasks.metric import directions
from statewise.training import Better, Parallel, Payload, Window, feed_values, forced_forward, truth_probability

_EVALUATION_VALUES = 1 << 17  # read side by side


class _Content(NamedTuple):
    prepared: Prepared
    lengths_B: Tensor | None  # of whole series; windows are all of one length
    step: int
    first_row: int  # of this rank, among the rows of all


def build_of(spec: ForecastingSpec, known: Known) -> Forecaster:
    return build_forecaster(
        spec,
        channels=1 if spec.data.channels == "shared" else len(known.channels),
        covariates=len(known.covariates) + len(spec.data.time_features),
        gaps=known.gaps,
        seed=spec.seed,
    )


@final
class ForecastingJob(Job):
    question = ("train", "validation", "test", "series", "length")

    spec: ForecastingSpec

    def __init__(self, spec: ForecastingSpec, parts: SeriesParts, known: Known, par: Parallel) -> None:
        self.spec, self.known, self._par = spec, known, par
        self.sha256 = fingerprint(
            [span.series.id for span in parts.train],
            [span.series.values_TC[span.begin : span.end].tobytes().hex() for span in parts.train],
            [span.series.covariates_TX[span.begin : span.end].tobytes().hex() for span in parts.train],
        )
        self.parts = parts.mapped(lambda series: as_read(series, spec.data, known))
        forecast = spec.forecast
        self._windows: SeriesWindows | None = None
        if isinstance(forecast.context, int):

            def windows(rank: int, world: int) -> SeriesWindows:
                assert isinstance(forecast.context, int)
                return SeriesWindows(
                    self.parts.train,
                    context=forecast.context,
                    horizon=forecast.horizon,
                    batch=spec.train.batch,
                    channels=spec.data.channels,
                    seed=spec.seed,
                    rank=rank,
                    world=world,
                )

            self._windows = windows(par.rank, par.world)
            self._everyone = self._windows if par.world == 1 else windows(0, 1)
            # Made at once: a part that is too short is refused before anything is trained.
            self._validation = evaluation_windows(spec, self.parts.validation, most=spec.train.evaluate_tokens)
        else:
            self._lengths = [span.end - span.begin for span in self.parts.train]
            self._batches = RaggedBatches(
                self._lengths, batch=spec.train.batch, seed=spec.seed, rank=par.rank, world=par.world
            )

    @classmethod
    def open(cls, spec: ForecastingSpec, opening: Opening) -> "ForecastingJob":
        parts = read_parts(spec.data, seed=spec.seed)
        if opening.kept is None:
            known = learn(spec, parts)
        else:
            path = opening.kept / "series.json"
            known = Known.from_json(path.read_text(encoding="utf-8"), where=opening.kept)
        return cls(spec, parts, known, opening.par).of_checkpoint(opening.kept)

    @property
    def judges(self) -> Mapping[str, Better]:
        own = self.spec.loss_name
        if self.spec.objective.of_bits:
            return directions(own)
        if isinstance(self.spec.objective, SquaredSpec):
            return directions("mse", "mae", "squared_error")
        return directions(own, "mse", "mae")

    @property
    def regular(self) -> bool:
        return self.spec.forecast.mode == "direct" or isinstance(self.spec.forecast.forcing, TeacherForcing)

    def build(self) -> Forecaster:
        return build_of(self.spec, self.known)

    def flops_per_token(self) -> float:
        forecast = self.spec.forecast
        # A time step's input predicts the next one, so the last of a row is not read.
        lengths = [forecast.context + forecast.horizon] if isinstance(forecast.context, int) else self._lengths
        flops = measured(self.build, row_flops)
        return sum(flops(length - 1) for length in lengths) / sum(lengths)

    def identity(self) -> dict[str, Payload]:
        return {"series.json": self.known.to_json(), "data.sha256": self.sha256}

    def headline(self) -> str:
        size = sum(p.numel() for p in self.build().parameters())
        name = ", ".join(self.spec.data.train) or f"the generator {self.spec.data.series!r}"
        counts = [sum(span.end - span.begin for span in part) for part in self.parts[:3]]
        unused = f", {self.parts.unused:,} rows unused" if self.parts.unused else ""
        scale = ", each series scaled by itself" if self.known.scaling_of else ""
        if self._windows is not None and self._windows.too_short:
            unused += f", {len(self._windows.too_short)} series too short to learn from"
        return (
            f"{self.spec.model.known_as}, {size:,} parameters, on {name} ({len(self.known.channels)} channels, "
            f"{' / '.join(f'{count:,}' for count in counts)} rows, period {self.known.period}{scale}{unused})"
        )

    def facts(self) -> dict[str, Any]:
        rows = {name: sum(span.end - span.begin for span in part) for name, part in self._named().items()}
        return {"data": {**rows, "unused": self.parts.unused, "period": self.known.period, "sha256": self.sha256}}

    def _named(self) -> dict[str, tuple[Span, ...]]:
        return {"train": self.parts.train, "validation": self.parts.validation, "test": self.parts.test}

    # ---------------------------------------------------------------- one step

    def window(self, step: int) -> Window:
        bits = self.spec.objective.of_bits
        if self._windows is None:
            mine, everyone = self._batches.at(step), self._batches.all_at(step)
            rows = _whole([self.parts.train[i] for i in mine])
            observed = rows if self._par.world == 1 else _whole([self.parts.train[i] for i in everyone])
            weight = _counted(observed.observed_BTC[:, 1:], bits)
            tokens = sum(self._lengths[i] for i in everyone)
            prepared = as_prepared(rows)
            content = _Content(
                prepared.to(self._par.device),
                onto(self._par.device, rows.lengths_B),
                step,
                self._batches.first_row(step),
            )
            weight = self._batches.divisor(step, max(1.0, weight))
            return Window(len(mine), 1, True, content, weight=weight, tokens=tokens)
        batch = self._windows.at(step)
        everyone_batch = batch if self._par.world == 1 else self._everyone.at(step)
        from_ = batch.context if self.spec.forecast.mode == "direct" else 1
        weight = _counted(everyone_batch.observed_BTC[:, from_:], bits)
        told = self.spec.forecast.mode == "direct" or isinstance(self.spec.forecast.forcing, TeacherForcing)
        obstacle = None if told else "the model may read itself, which is decided time step by time step"
        if not bool(batch.observed_BTC.all()):
            obstacle = "values are missing, and how many is not the same in every window"
        return Window(
            len(batch.values_BTC),
            1,
            True,
            _Content(prepare(batch).to(self._par.device), None, 0 if told else step, self._windows.first_row),
            weight=max(1.0, weight) / self._par.world,
            tokens=everyone_batch.observed_BTC[..., 0].numel(),
            ends=True,
            obstacle=obstacle,
        )

    def loss(self, model: Any, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        prepared, lengths_B, step, first_row = window.content
        loss = forecaster_loss(
            model,
            prepared.rows(some),
            None if lengths_B is None else lengths_B[some],
            forcing=self.spec.forecast.forcing,
            step=step,
            key=(self.spec.seed, step, 0),
            first_row=first_row + (some.start or 0),
        )
        return loss.total, state

    # ---------------------------------------------------------------- figures

    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        spec, device, own = self.spec, self._par.device, self.spec.loss_name
        whole, bits = spec.forecast.context == "all", spec.objective.of_bits
        total, weight, squared, absolute, count = 0.0, 0.0, 0.0, 0.0, 0
        batches: Iterable[tuple[Prepared, Tensor | None]]
        if whole:
            batches = ((as_prepared(rows), rows.lengths_B) for _, rows in whole_batches(self.parts.validation))
        else:
            batches = ((prepare(batch), None) for batch in self._validation)
        for read, lengths_B in batches:
            poll()
            prepared = read.to(device)
            lengths_B = None if lengths_B is None else lengths_B.to(device)
            loss = forecaster_loss(model, prepared, lengths_B, ahead_only=not whole)
            total, weight = total + float(loss.total), weight + float(loss.weight)
            if bits:
                continue
            if whole:
                mean, target = one_step(model, prepared, lengths_B)
            else:
                mean = model.forecast(prepared.past, horizon=spec.forecast.horizon).mean_BHC
                target = prepared.target_BHC
            square, apart, known = _errors(mean, target)
            squared, absolute, count = squared + square, absolute + apart, count + known
        figures = {own: total / max(weight, 1.0)}
        if not bits:
            figures |= {"mse": squared / max(count, 1), "mae": absolute / max(count, 1)}
        return {name: figures[name] for name in self.judges}


def forecaster_loss(
    model: Any,
    prepared: Prepared,
    lengths_B: Tensor | None = None,
    *,
    forcing: ForcingSpec | None = None,
    step: int = 0,
    key: tuple[int, ...] = (),
    first_row: int = 0,
    ahead_only: bool = False,
) -> WeightedSum:
    """The head's loss. A recursive model learns at every time step but the first, `ahead_only`: of the horizon."""
    if isinstance(model, DirectForecaster):
        params, shift_BHC = model(prepared.past)
        return real_loss(model.head, params, (prepared.target_BHC - shift_BHC).flatten(1))
    assert isinstance(model, RecursiveForecaster)
    forcing = forcing or TeacherForcing()
    context = prepared.past.values_BLC.shape[1]
    x_BTI, all_BTC, seen_BTC = as_sequence(model, prepared)
    sample = not isinstance(forcing, TeacherForcing) and forcing.choice == "sample"
    # The context is always the truth; ragged rows have none, and are forced from their beginning.
    true = context if lengths_B is None else 1
    probability = truth_probability(forcing, step)
    if probability == 1 or x_BTI.shape[1] <= true:
        outputs_BTD, _ = model.machine(x_BTI, None, lengths_B if lengths_B is None else (lengths_B - 1).clamp(min=0))
    else:
        feedback = feed_values(lambda output, uniform: model.fed(output, sample=sample))
        forced = partial(
            forced_forward,
            model.machine,
            truth_probability=probability,
            key=key,
            feedback=feedback,
            first_row=first_row,
        )
        if lengths_B is None:
            early_BTD, state = model.machine(x_BTI[:, :true])
            late_BTD, _ = forced(x_BTI[:, true:], state, before=early_BTD[:, -1])
            outputs_BTD = torch.cat([early_BTD, late_BTD], dim=1)
        else:
            outputs_BTD, _ = forced(x_BTI, lengths_B=(lengths_B - 1).clamp(min=0))
    params, shift = model.distribution(outputs_BTD)
    wanted_BTC = all_BTC[:, 1:] - shift
    counted_BTC = seen_BTC[:, 1:].clone()
    if ahead_only:
        counted_BTC[:, : context - 1] = False
    return real_loss(model.head, params, wanted_BTC, counted=counted_BTC)


def as_sequence(model: RecursiveForecaster, prepared: Prepared) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs at every time step but the last; and all values, and which of them were observed."""
    values_BLC, observed_BLC, covariates_BTX = prepared.past
    all_BTC = torch.cat([values_BLC, prepared.target_BHC.nan_to_num()], 1)
    seen_BTC = torch.cat([observed_BLC, ~prepared.target_BHC.isnan()], 1)
    if model.gaps or not model.training:  # in the horizon, too, a missing value is read as the last one seen
        all_BTC = carried(all_BTC, seen_BTC)
    return model.inputs(all_BTC[:, :-1], seen_BTC[:, :-1], covariates_BTX[:, 1:]), all_BTC, seen_BTC


@torch.no_grad()
def one_step(model: RecursiveForecaster, prepared: Prepared, lengths_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Each next value given the true past, and the truth; what is missing, or past a row's end, is NaN."""
    x_BTI, all_BTC, seen_BTC = as_sequence(model, prepared)
    outputs_BTD, _ = model.machine(x_BTI, None, None if lengths_B is None else (lengths_B - 1).clamp(min=0))
    params, shift = model.distribution(outputs_BTD)
    return model.head.mean(params) + shift, all_BTC[:, 1:].masked_fill(~seen_BTC[:, 1:], torch.nan)


def evaluation_windows(spec: ForecastingSpec, spans: tuple[Span, ...], *, most: int | None = None) -> RollingOrigin:
    """Every origin, `stride` apart; or, if these hold more than `most` values, fewer, evenly spread."""
    context, horizon = spec.forecast.context, spec.forecast.horizon
    assert isinstance(context, int)

    def rolling(stride: int) -> RollingOrigin:
        size = max(1, _EVALUATION_VALUES // (context + horizon))
        return RollingOrigin(
            spans, context=context, horizon=horizon, stride=stride, batch=size, channels=spec.data.channels
        )

    windows = rolling(spec.forecast.stride)
    values = windows.windows * (context + horizon)
    if most is not None and values > most:
        windows = rolling(spec.forecast.stride * -(-values // most))
    return windows


def whole_batches(spans: Sequence[Span]) -> list[tuple[Sequence[Span], SeriesRows]]:
    """Of similar lengths together; an order that does not matter to sums."""
    ordered = sorted(spans, key=lambda span: span.end - span.begin)
    some = [ordered[i : i + 64] for i in range(0, len(ordered), 64)]
    return [(series_, _whole(series_)) for series_ in some]


def _whole(spans: Sequence[Span]) -> SeriesRows:
    return series_rows([cut(span) for span in spans])


def cut(span: Span) -> Series:
    """The rows of a span as a series of their own."""
    series, some = span.series, slice(span.begin, span.end)
    return replace(
        series,
        time_T=series.time_T[some],
        values_TC=series.values_TC[some],
        covariates_TX=series.covariates_TX[some],
    )


def as_prepared(rows: SeriesRows) -> Prepared:
    """A context of one time step and a horizon of all the others."""
    target_BTC = rows.values_BTC[:, 1:].masked_fill(~rows.observed_BTC[:, 1:], torch.nan)
    return Prepared(Past(rows.values_BTC[:, :1], rows.observed_BTC[:, :1], rows.covariates_BTX), target_BTC)


def _counted(observed_BTC: Tensor, bits: bool) -> float:
    return float(observed_BTC.all(-1).sum() if bits else observed_BTC.sum())


def _errors(forecast: Tensor, target: Tensor) -> tuple[float, float, int]:
    known = ~target.isnan()
    apart = torch.where(known, forecast - target, torch.zeros_like(target)).double()
    return float(apart.square().sum()), float(apart.abs().sum()), int(known.sum())

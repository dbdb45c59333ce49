"""What an evaluation of forecasts found, and how it is measured.

B windows, H steps ahead, C channels, Q levels.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.data import RollingOrigin, Span
from statewise.models import DirectForecaster, Forecast, Forecaster, RecursiveForecaster
from statewise.specs import BernoulliSpec, ForecastingSpec, GaussianSpec, QuantileSpec, SquaredSpec, StudentSpec
from statewise.tasks.forecasting.errors import Errors, Tally, baseline_errors, frame_nats
from statewise.tasks.forecasting.examples import carried, prepare
from statewise.tasks.forecasting.job import as_prepared, forecaster_loss, one_step, whole_batches
from statewise.tasks.forecasting.known import Known
from statewise.tasks.metric.series import crps_gaussian, crps_quantiles, crps_samples, crps_student, interval
from statewise.tasks.report import Report, percent, shows_report, worse_than_trivial

Array = NDArray[np.float64]
COVERAGES = (0.5, 0.8, 0.95)
STEPS = (1, 4, 16, 64)
_VALUES = 1 << 17


@shows_report
class ForecastEvaluation(NamedTuple):
    """`mse` and `mae` are in units of the training part's deviation, the mean over the horizon and all windows."""

    part: str
    units: str  # of MSE and MAE
    windows: int
    too_short: int  # series that are not long enough for one
    horizon: int
    period: int
    mse: float | None
    mae: float | None
    mse_original: float | None
    mae_original: float | None
    smape: float | None
    mase: float | None
    nats: float | None
    pinball: float | None
    nats_per_frame: float | None
    crps: float | None
    coverage: dict[str, dict[str, float]]  # of intervals that should hold 50, 80, 95 %: what they hold, and how wide
    at: dict[str, dict[str, float]]  # k steps ahead: the error at exactly k, and the mean up to k
    curve: list[float]  # MSE at 1, 2, … steps ahead, in a closed loop: where the error accumulates
    one_step_mse: float | None  # recursive: one step ahead, all along the horizon, given the truth
    baselines: dict[str, dict[str, Any]]

    def report(self, name: str) -> Report:
        if self.nats_per_frame is not None:
            rows = [(name, f"{self.nats_per_frame:.3f}")]
            rows += [(key, f"{baseline['nats_per_frame']:.3f}") for key, baseline in self.baselines.items()]
            warning = self._warning(name, "nats per frame", "nats_per_frame")
            note = f"{self.windows:,} frames of the {self.part}"
            return Report(("nats per frame",), tuple(rows), own=0, note=note, warning=warning)
        steps = list(self.at) if self.horizon > 1 else []  # one step ahead, it is the MSE itself
        rows_of = {name: self._asdict(), **self.baselines}
        table = tuple(
            (
                key,
                f"{one['mse']:.4f}",
                f"{one['mae']:.4f}",
                f"{one['smape']:.2f}",
                "" if one["mase"] is None else f"{one['mase']:.3f}",
                *(f"{one['at'][k]['mse']:.4f}" for k in steps),
            )
            for key, one in rows_of.items()
        )
        columns = ("MSE", "MAE", "sMAPE", "MASE", *(f"MSE at {k}" for k in steps))
        note = f"{self.windows:,} windows of the {self.part}, {self.horizon} ahead, period {self.period}, "
        note += f"in {self.units}"
        if self.too_short:
            note += f" · {self.too_short} series are too short"
        if self.crps is not None:
            held = ", ".join(
                f"{level.replace('%', ' %')} in {percent(one['share'])}" for level, one in self.coverage.items()
            )
            note += f" · CRPS {self.crps:.4f} (of a forecast without a spread it is the MAE) · intervals hold: {held}"
        return Report(columns, table, own=0, note=note, warning=self._warning(name, "MSE", "mse"))

    def _warning(self, name: str, metric: str, key: str) -> str:
        trivial = {baseline: found.get(key) for baseline, found in self.baselines.items()}
        return worse_than_trivial(name, key, self._asdict()[key], trivial, label=metric)


def at_steps(errors: Errors, steps: Sequence[int]) -> dict[str, dict[str, float]]:
    """At exactly k, and the mean of 1 to k."""
    return {
        str(k): {
            "mse": errors.mse_at[k - 1],
            "mae": errors.mae_at[k - 1],
            "mse_to": float(np.mean(errors.mse_at[:k])),
            "mae_to": float(np.mean(errors.mae_at[:k])),
        }
        for k in steps
        if k <= len(errors.mse_at)
    }


def levels_of(spec: ForecastingSpec, wanted: Sequence[float]) -> tuple[float, ...]:
    """Those of the wanted levels that a model of this spec can speak of."""
    match spec.objective:
        case SquaredSpec() | BernoulliSpec():
            return ()
        case QuantileSpec(levels=levels) if spec.forecast.mode == "direct":
            return tuple(q for q in wanted if levels[0] - 1e-9 <= q <= levels[-1] + 1e-9)
        case _:
            return tuple(wanted)


def sampled(spec: ForecastingSpec) -> int:
    """Paths to sample: only a recursive model with a distribution needs them."""
    certain = isinstance(spec.objective, SquaredSpec | BernoulliSpec)
    return 0 if spec.forecast.mode == "direct" or certain else spec.forecast.paths


class _Spread:
    """CRPS and intervals, summed over windows."""

    def __init__(self, spec: ForecastingSpec, *, silent: bool) -> None:
        self._spec = spec
        wanted = sorted({(1 + sign * c) / 2 for c in COVERAGES for sign in (-1, 1)})
        self.levels = () if silent else levels_of(spec, wanted)
        if not silent and isinstance(spec.objective, QuantileSpec) and spec.forecast.mode == "direct":
            self.levels = tuple(sorted({*self.levels, *spec.objective.levels}))
        self._crps = 0.0
        self._count = 0
        self._held: dict[float, list[float]] = {}

    def add(self, target_BHC: Array, forecast: Forecast) -> None:
        if not self.levels:
            return
        quantile_BHCQ = forecast.quantile_BHCQ.double().cpu().numpy()
        count = int((~np.isnan(target_BHC)).sum())
        if not count:
            return
        for coverage in COVERAGES:
            low, high = (self._index((1 + sign * coverage) / 2) for sign in (-1, 1))
            if low is not None and high is not None:
                found = interval(target_BHC, quantile_BHCQ[..., low], quantile_BHCQ[..., high])
                sums = self._held.setdefault(coverage, [0.0, 0.0])
                sums[0] += found.coverage * count
                sums[1] += found.width * count
        self._crps += self._crps_of(target_BHC, forecast, quantile_BHCQ) * count
        self._count += count

    def _index(self, level: float) -> int | None:
        return next((i for i, q in enumerate(self.levels) if abs(q - level) < 1e-9), None)

    def _crps_of(self, target: Array, forecast: Forecast, quantile_BHCQ: Array) -> float:
        if forecast.draws_SBHC is not None:
            return crps_samples(target, forecast.draws_SBHC.double().cpu().numpy())
        objective = self._spec.objective
        if isinstance(objective, QuantileSpec):
            own = np.array([self._index(q) for q in objective.levels], dtype=np.int64)
            return crps_quantiles(target, np.take(quantile_BHCQ, own, axis=-1), levels=objective.levels)
        assert forecast.parameters is not None
        parameters = [parameter.double().cpu().numpy() for parameter in forecast.parameters]
        if isinstance(objective, GaussianSpec):
            return crps_gaussian(target, *parameters)
        assert isinstance(objective, StudentSpec)
        return crps_student(target, *parameters)

    def crps(self) -> float | None:
        return self._crps / self._count if self._count else None

    def coverage(self) -> dict[str, dict[str, float]]:
        return {
            f"{coverage:.0%}": {"share": inside / self._count, "width": width / self._count}
            for coverage, (inside, width) in self._held.items()
        }


@torch.no_grad()
def evaluate_windows(
    model: Forecaster,
    spec: ForecastingSpec,
    known: Known,
    *,
    spans: Sequence[Span],
    part: str,
    device: torch.device,
    steps: Sequence[int] = STEPS,
) -> ForecastEvaluation:
    """Every origin of the spans, `stride` apart: the model, and the baselines on the same windows."""
    context, horizon = spec.forecast.context, spec.forecast.horizon
    assert isinstance(context, int)
    paths = sampled(spec)
    size = max(1, _VALUES // (context + horizon * max(1, paths)))
    rolling = RollingOrigin(
        spans,
        context=context,
        horizon=horizon,
        stride=spec.forecast.stride,
        batch=size,
        channels=spec.data.channels,
    )
    # Beyond the horizon it was trained for, a direct model goes on from its own mean: it has no intervals there.
    silent = spec.forecast.mode == "direct" and horizon > model.at_once
    tally, units, spread = Tally(horizon=horizon), known.units(spans), _Spread(spec, silent=silent)
    generator = torch.Generator(device).manual_seed(spec.seed)
    total, weight = 0.0, 0.0
    squared, count = 0.0, 0
    for batch in rolling:
        prepared = prepare(batch).to(device)
        forecast = model.forecast(
            prepared.past, horizon=horizon, levels=spread.levels, paths=paths, generator=generator
        )
        target_BHC = prepared.target_BHC.double().cpu().numpy()
        channel_B = None if batch.channel_B is None else batch.channel_B.numpy()
        tally.add(target_BHC, forecast.mean_BHC.double().cpu().numpy(), units.of(batch.span_B.numpy(), channel_B))
        spread.add(target_BHC, forecast)
        if isinstance(model, RecursiveForecaster):
            found = forecaster_loss(model, prepared, ahead_only=True)
            total, weight = total + float(found.total), weight + float(found.weight)
            mean_BTC, truth_BTC = one_step(model, prepared)
            apart = (mean_BTC - truth_BTC)[:, context - 1 :].double()
            squared += float(apart.nan_to_num().square().sum())
            count += int((~apart.isnan()).sum())
        elif isinstance(model, DirectForecaster) and model.horizon == horizon:
            found = forecaster_loss(model, prepared)
            total, weight = total + float(found.total), weight + float(found.weight)
    errors = tally.errors()
    shown = sorted({*(k for k in steps if k <= horizon), horizon})
    baselines = baseline_errors(spans, known, context=context, horizon=horizon, stride=spec.forecast.stride)
    windows = rolling.windows // (len(known.channels) if spec.data.channels == "shared" else 1)
    return _evaluation(
        spec,
        known,
        errors,
        shown,
        total / weight if weight else None,
        part=part,
        windows=windows,
        too_short=len(rolling.too_short),
        horizon=horizon,
        crps=spread.crps(),
        coverage=spread.coverage(),
        one_step_mse=squared / count if count else None,
        baselines={name: _baseline(baseline, shown) for name, baseline in baselines.items()},
    )


def _evaluation(
    spec: ForecastingSpec, known: Known, errors: Errors | None, steps: Sequence[int], loss: float | None, **more: Any
) -> ForecastEvaluation:
    """What was measured; what was not is None, or empty. `loss`: the mean of the head's own."""
    fields: dict[str, Any] = dict.fromkeys(ForecastEvaluation._fields)
    fields |= {"units": known.unit, "period": known.period, "coverage": {}, "at": {}, "curve": [], **more}
    if errors is not None:
        fields |= {name: value for name, value in errors._asdict().items() if name in fields}
        fields |= {"at": at_steps(errors, steps), "curve": errors.mse_at}
    if spec.loss_name in fields:
        fields[spec.loss_name] = loss
    return ForecastEvaluation(**fields)


def _baseline(errors: Errors, steps: Sequence[int]) -> dict[str, Any]:
    return {**errors._asdict(), "at": at_steps(errors, steps)}


@torch.no_grad()
def evaluate_frames(
    model: RecursiveForecaster,
    spec: ForecastingSpec,
    known: Known,
    *,
    spans: Sequence[Span],
    part: str,
    device: torch.device,
) -> ForecastEvaluation:
    """Each series from its beginning, one step ahead at every time step but the first."""
    bits = spec.objective.of_bits
    tally, naive = Tally(horizon=1), Tally(horizon=1)
    total, weight = 0.0, 0.0
    for some, rows in whole_batches(spans):
        prepared, lengths_B = as_prepared(rows).to(device), rows.lengths_B.to(device)
        found = forecaster_loss(model, prepared, lengths_B)
        total, weight = total + float(found.total), weight + float(found.weight)
        if not bits:
            mean_BTC, truth_BTC = (one.double().cpu().numpy() for one in one_step(model, prepared, lengths_B))
            before_BTC = carried(rows.values_BTC, rows.observed_BTC)[:, :-1].double().numpy()
            channels = truth_BTC.shape[-1]
            units = known.units(some).of(np.repeat(np.arange(len(some)), truth_BTC.shape[1]))
            for tallied, guess in ((tally, mean_BTC), (naive, before_BTC)):
                tallied.add(truth_BTC.reshape(-1, 1, channels), guess.reshape(-1, 1, channels), units)
    errors = None if bits else tally.errors()
    baselines: dict[str, dict[str, Any]] = {"repeat last": _baseline(naive.errors(), [1])}
    if bits:
        baselines = {name: {"nats_per_frame": nats} for name, nats in frame_nats(spans, known).items()}
    return _evaluation(
        spec,
        known,
        errors,
        [1],
        total / max(weight, 1.0),
        part=part,
        windows=int(weight) if bits else sum(max(0, span.end - span.begin - 1) for span in spans),
        too_short=sum(span.end - span.begin < 2 for span in spans),
        horizon=1,
        one_step_mse=None if errors is None else errors.mse,
        baselines=baselines,
    )


def evaluate_whole(
    model: RecursiveForecaster,
    spec: ForecastingSpec,
    known: Known,
    *,
    spans: Sequence[Span],
    part: str,
    device: torch.device,
    steps: Sequence[int] = STEPS,
) -> ForecastEvaluation:
    """One step ahead at every time step; and, of real values, one closed loop a series, from as far on as all allow."""
    frames = evaluate_frames(model, spec, known, spans=spans, part=part, device=device)
    horizon = spec.forecast.horizon
    read = min(max(span.begin, span.end - horizon) if span.begin == span.reach else span.begin for span in spans)
    read -= max(span.reach for span in spans)
    if spec.objective.of_bits or read < 1:
        return frames
    once = spec.forecast.model_copy(update={"context": read, "stride": max(len(span.series) for span in spans)})
    loops = evaluate_windows(
        model,
        spec.model_copy(update={"forecast": once}),
        known,
        spans=spans,
        part=part,
        device=device,
        steps=steps,
    )
    return loops._replace(nats=frames.nats, pinball=frames.pinball, one_step_mse=frames.mse)

"""Do the dynamics change with time? Give the model the time and see whether that helps.

K blocks held out, S seeds.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.data import RollingOrigin, Series, SeriesParts, Span
from statewise.kernels import student_t
from statewise.specs import ForecastingSpec, ForecastSpec, SeriesDataSpec, TrainSpec, UserError, WindowSpec
from statewise.tasks.forecasting.examples import prepare, read_parts
from statewise.tasks.forecasting.job import ForecastingJob, forecaster_loss
from statewise.tasks.forecasting.known import Known, learn
from statewise.tasks.report import Report, TimeWords, shows_report
from statewise.training import Parallel, fit, pick_device

# Small, and with a short past: a long one would show which dynamics hold, and t would have nothing left to tell.
SMALL = ForecastingSpec(
    model=WindowSpec(order=1, width=32, hidden=32),
    forecast=ForecastSpec(context=1, horizon=1),
    train=TrainSpec(steps=400, batch=64, lr=1e-2, warmup=20),
)
SEEDS = (0, 1, 2, 3, 4)


@shows_report
class Stationarity(NamedTuple):
    """Held-out loss without and with t, and by how much t helps, with the interval of that."""

    without: float
    with_time: float
    gain: float
    low: float
    high: float
    confidence: float
    blocks: int
    seeds: tuple[int, ...]
    gain_by_seed: tuple[float, ...]
    loss: str  # what is counted

    @property
    def words(self) -> TimeWords:
        return TimeWords("its series", "is the series stationary?", "small models")

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()

    @property
    def stationary(self) -> bool:
        """There is no sign of the opposite: t does not help beyond doubt."""
        return self.low <= 0

    def report(self, name: str) -> Report:
        verdict = (
            "no sign that the law changes with time"
            if self.stationary
            else f"the time helps, by {self.gain / self.without:.1%}: the law changes with it and the series is not "
            "stationary, or the time tells something that the one row before does not"
        )
        return Report(
            (f"held-out {self.loss.replace('_', ' ')}", "less by", f"{self.confidence:.0%} interval"),
            (
                ("without the time", f"{self.without:.4f}", "", ""),
                ("with the time", f"{self.with_time:.4f}", f"{self.gain:+.4f}", f"{self.low:+.4f} to {self.high:+.4f}"),
            ),
            1,
            f"{verdict} · {len(self.seeds)} seeds, {self.blocks} blocks held out all along {name}",
        )


def stationarity(
    spec: ForecastingSpec = SMALL,
    *,
    series: Series | Sequence[Series] | None = None,
    seeds: Sequence[int] = SEEDS,
    block: int = 25,
    every: int = 4,
    confidence: float = 0.95,
) -> Stationarity:
    """The same model on the same windows, with and without the time t as an input.

    What is held out is every so-many-th block of rows, all along the series, not its end: a law learnt for early t
    says nothing of late t, and the question is whether there is such a law. The interval is that of the mean gain,
    paired block by block and seed by seed; its variance is that over blocks and that over seeds together.
    """
    if spec.forecast.mode != "direct":
        raise UserError(
            "the test of stationarity needs forecast.mode = direct: a recursive model learns from all that it reads, "
            "the rows held out included"
        )
    if "t" in spec.data.time_features:
        raise UserError("data.time_features already holds t, whose use is the question", fix="leave it out")
    if len(seeds) < 2:
        raise UserError("one seed does not show how much chance there is", fix="give two or more")
    parts = _blocks(_given(spec, series), spec, block=block, every=every)
    known = learn(spec, parts)
    loss_SK2 = np.array(
        [
            [_held_out_losses(_variant(spec, features, seed), parts, known) for features in ((), ("t",))]
            for seed in seeds
        ]
    ).swapaxes(1, 2)
    gain_SK = loss_SK2[..., 0] - loss_SK2[..., 1]
    by_seed_S, by_block_K = gain_SK.mean(1), gain_SK.mean(0)
    parts_of = [(some.var(ddof=1) / len(some), len(some) - 1) for some in (by_block_K, by_seed_S)]
    variance = sum(share for share, _ in parts_of)
    # Welch and Satterthwaite: how many degrees of freedom a sum of two estimated variances has.
    below = sum(share**2 / freedom for share, freedom in parts_of)
    freedom = torch.tensor(variance**2 / below if below else 1.0, dtype=torch.float64)
    reach = float(student_t.quantile(torch.tensor((1 + confidence) / 2, dtype=torch.float64), freedom))
    gain, half = float(gain_SK.mean()), reach * math.sqrt(variance)
    without, with_time = loss_SK2.mean((0, 1)).tolist()
    return Stationarity(
        without=without,
        with_time=with_time,
        gain=gain,
        low=gain - half,
        high=gain + half,
        confidence=confidence,
        blocks=len(by_block_K),
        seeds=tuple(seeds),
        gain_by_seed=tuple(by_seed_S.tolist()),
        loss=spec.loss_name,
    )


def of_data(data: SeriesDataSpec, *, seed: int, seeds: Sequence[int] = SEEDS) -> Stationarity:
    """Of all series of a run, from their first row to their last. If it has the time as an input, that is left out."""
    features = tuple(feature for feature in data.time_features if feature != "t")
    data = data.model_copy(update={"time_features": features})
    parts = read_parts(data, seed=seed)
    spans = (*parts.train, *parts.validation, *parts.test)
    every = {id(span.series): span.series for span in spans}
    spec = SMALL.model_copy(update={"data": data, "seed": seed})
    return stationarity(spec, series=list(every.values()), seeds=seeds)


def _given(spec: ForecastingSpec, series: Series | Sequence[Series] | None) -> list[Span]:
    if series is None:
        return list(read_parts(spec.data, seed=spec.seed).train)
    some = [series] if isinstance(series, Series) else list(series)
    return [Span(series_, 0, len(series_), 0) for series_ in some]


def _blocks(spans: Sequence[Span], spec: ForecastingSpec, *, block: int, every: int) -> SeriesParts:
    """Blocks of rows, of which every so-many-th is held out."""
    context, horizon = spec.forecast.context, spec.forecast.horizon
    assert isinstance(context, int)
    if every < 2 or block < horizon:
        raise UserError(f"blocks of {block}, every {every}th held out: expected at least {horizon} and 2")
    train: list[Span] = []
    held: list[Span] = []
    for span in spans:
        for number, begin in enumerate(range(span.begin, span.end, block)):
            part = span._replace(begin=begin, end=min(begin + block, span.end))
            (held if number % every == every - 1 else train).append(part)
    held = [span for span in held if span.end - max(span.begin, span.reach + context) >= horizon]
    if len(held) < 2:
        raise UserError(
            f"only {len(held)} blocks of {block} rows would be held out, expected 2 or more",
            fix="give a longer series, or make block smaller",
        )
    return SeriesParts(tuple(train), tuple(held), ())


def _variant(spec: ForecastingSpec, features: tuple[str, ...], seed: int) -> ForecastingSpec:
    data = spec.data.model_copy(update={"time_features": (*spec.data.time_features, *features)})
    once = spec.train.model_copy(update={"evaluate_every": max(1, spec.train.steps), "evaluate_tokens": 1000})
    return spec.model_copy(update={"data": data, "seed": seed, "train": once})


def _held_out_losses(spec: ForecastingSpec, parts: SeriesParts, known: Known) -> NDArray[np.float64]:
    """The mean loss of each block, after training on the others."""
    device = pick_device(spec.train.device)
    job = ForecastingJob(spec, parts, known, Parallel(device=device))
    model = job.build().to(device)
    fit(model, job, spec.train, seed=spec.seed)
    model.eval()
    context = spec.forecast.context
    assert isinstance(context, int)
    results = []
    for span in job.parts.validation:
        total, weight = 0.0, 0.0
        rolling = RollingOrigin(
            [span], context=context, horizon=spec.forecast.horizon, batch=1024, channels=spec.data.channels
        )
        for batch in rolling:
            with torch.no_grad():
                loss = forecaster_loss(model, prepare(batch).to(device))
            total, weight = total + float(loss.total), weight + float(loss.weight)
        results.append(total / max(weight, 1.0))
    return np.array(results)

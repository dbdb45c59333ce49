"""A trained forecaster, opened."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch

from statewise.data.at_rest import at_rest
from statewise.data.series import Series, make_series
from statewise.data.series_split import Span, whole
from statewise.decoding import Sampling
from statewise.models.forecaster import Forecaster, RecursiveForecaster
from statewise.specs import ForecastingSpec, UserError, make_spec, mixers_of
from statewise.tasks.forecasting.ahead import Ahead, fill, go_on, last_seen
from statewise.tasks.forecasting.evaluation import STEPS, ForecastEvaluation, evaluate_whole, evaluate_windows
from statewise.tasks.forecasting.examples import as_read, read_files, read_parts
from statewise.tasks.forecasting.exposure import forecast_gap, gap_windows
from statewise.tasks.forecasting.interpolation import Interpolation, filled_holes
from statewise.tasks.forecasting.job import build_of, loss_name
from statewise.tasks.forecasting.known import Known, refuse_no_bits
from statewise.tasks.forecasting.plot import Shown, save_plot
from statewise.tasks.forecasting.prompt import series_of
from statewise.tasks.forecasting.specimens import ForecastingSpecimens
from statewise.tasks.forecasting.stationarity import Stationarity, of_data
from statewise.tasks.forecasting.write import appended, moment_of, number
from statewise.tasks.run import Opened, Run
from statewise.training.forcing import ExposureGap

Part = Literal["validation", "test"]
LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
_TABLE = ".csv"  # what standard input is taken for
_CHANGEABLE = ("horizon", "stride", "paths")


@final
class ForecastingRun(Run):
    spec: ForecastingSpec
    model: Forecaster

    def __init__(
        self,
        path: Path,
        *,
        spec: ForecastingSpec,
        model: Forecaster,
        known: Known,
        device: torch.device,
        skipped: Sequence[str] = (),
    ) -> None:
        self.path, self.spec, self.model = path, spec, model.eval()
        self.known, self.skipped = known, list(skipped)
        self._device = device

    @classmethod
    def open(cls, spec: ForecastingSpec, opened: Opened) -> "ForecastingRun":
        known = Known.from_json(opened.text("series.json"), where=opened.verified)
        model = opened.model(lambda: build_of(spec, known))
        return cls(opened.path, spec=spec, model=model, known=known, device=opened.device, skipped=opened.skipped)

    @property
    def device(self) -> torch.device:
        return self._device

    def sizes(self) -> dict[str, Any]:
        forecast = self.spec.forecast
        return {**self.spec.model.sizes(), "context": forecast.context, "horizon": forecast.horizon}

    def with_settings(self, settings: Sequence[str]) -> "ForecastingRun":
        """Another `forecast.horizon` (any), `forecast.stride`, `forecast.paths`."""
        if not settings:
            return self
        table = self.spec.model_dump(mode="json", exclude_none=True)
        spec = make_spec(table, settings, source=f"{self.path}/run.toml", mixers=mixers_of(self.spec))
        assert isinstance(spec, ForecastingSpec)
        changed = {name: getattr(spec.forecast, name) for name in _CHANGEABLE}
        kept = self.spec.model_copy(update={"forecast": self.spec.forecast.model_copy(update=changed)})
        if kept != spec:
            raise UserError(
                f"{', '.join(settings)}: after training, only {', '.join(f'forecast.{n}' for n in _CHANGEABLE)} "
                "can be changed",
                fix="train anew to change the rest",
            )
        return ForecastingRun(
            self.path, spec=kept, model=self.model, known=self.known, device=self.device, skipped=self.skipped
        )

    # ---------------------------------------------------------------- figures

    def evaluate(
        self,
        data: str | Path | Sequence[str] | None = None,
        *,
        part: Part | None = None,
        steps: Sequence[int] = STEPS,
    ) -> ForecastEvaluation:
        """On the test part where the data have one, on the validation part otherwise, or on the one named by `part`.

        `data` are files of whole series, read at the scale of training.
        """
        if self.spec.forecast.horizon < self.model.at_once and (self.known.covariates or self.spec.data.time_features):
            raise UserError(
                f"this model reads the covariates of all {self.model.at_once} moments that it forecasts at once, "
                f"and cannot be evaluated on {self.spec.forecast.horizon}",
                fix="evaluate it at its own horizon: the errors at fewer steps are among its figures",
            )
        name, spans = self._chosen(data, part)
        if self.spec.forecast.context == "all":
            assert isinstance(self.model, RecursiveForecaster)
            return evaluate_whole(
                self.model, self.spec, self.known, spans=spans, part=name, device=self.device, steps=steps
            )
        return evaluate_windows(
            self.model,
            self.spec,
            self.known,
            spans=spans,
            part=name,
            device=self.device,
            steps=steps,
        )

    def stationarity(self) -> Stationarity:
        return of_data(self.spec.data, seed=self.spec.seed)

    def backtest(
        self,
        *,
        folds: int = 5,
        part: Part | None = None,
        data: str | Path | Sequence[str] | None = None,
    ) -> list[ForecastEvaluation]:
        """The rolling origin in `folds` stretches of time, one after the other: is it as good later as earlier?"""
        if isinstance(self.spec.forecast.context, str):
            raise UserError("a run with forecast.context = all reads whole series: there are no origins to roll")
        name, spans = self._chosen(data, part)
        found = []
        for fold in range(folds):
            cut = [
                span._replace(
                    begin=span.begin + (span.end - span.begin) * fold // folds,
                    end=span.begin + (span.end - span.begin) * (fold + 1) // folds,
                )
                for span in spans
            ]
            found.append(
                evaluate_windows(
                    self.model,
                    self.spec,
                    self.known,
                    spans=cut,
                    part=f"{name}, stretch {fold + 1} of {folds}",
                    device=self.device,
                )
            )
        return found

    def interpolation(
        self,
        *,
        gap: int = 8,
        holes: int = 50,
        part: Part | None = None,
        data: str | Path | Sequence[str] | None = None,
    ) -> Interpolation:
        """Cut holes into what was held out, fill them, and compare with what had stood there."""
        _, spans = self._chosen(data, part, scaled=False)
        return filled_holes(self.model, self.spec, self.known, spans, gap=gap, holes=holes, device=self.device)

    def specimens(
        self, data: str | Path | Sequence[str] | None = None, *, text: str | None = None
    ) -> ForecastingSpecimens:
        if text is not None:
            raise UserError("this run forecasts series, and a text is none", fix="name a file: --data FILE")
        name, spans = self._chosen(data, None)
        source = f"the {name}" if data is None else f"{data}"
        return ForecastingSpecimens(
            self.model, spans, spec=self.spec, known=self.known, source=source, device=self.device
        )

    @property
    def exposure_unit(self) -> str:
        return loss_name(self.spec)

    def exposure_gap(
        self,
        data: str | Path | Sequence[str] | None = None,
        *,
        rows: int = 128,
        choice: Literal["sample", "best"] = "best",
        seed: int = 0,
        part: Part | None = None,
    ) -> ExposureGap:
        """The loss of each next value after `context` true ones, on about `rows` windows without a missing value."""
        model, context = self.model, self.spec.forecast.context
        if not isinstance(model, RecursiveForecaster):
            raise UserError(
                "this run forecasts its whole horizon at once and reads nothing of its own: it has no exposure gap",
                fix="train with forecast.mode = recursive to compare",
            )
        _, spans = self._chosen(data, part)
        return forecast_gap(
            model,
            *gap_windows(self.spec, spans, rows=rows),
            context=1 if isinstance(context, str) else context,
            sample=choice == "sample",
            device=self.device,
            seed=seed,
        )

    def _chosen(
        self, data: str | Path | Sequence[str] | None, part: Part | None, *, scaled: bool = True
    ) -> tuple[str, tuple[Span, ...]]:
        """What figures are asked of, as it is read or as it was measured. Other files need no training data."""

        def read(series: Series) -> Series:
            return as_read(series, self.spec.data, self.known) if scaled else series

        if data is not None:
            if part is not None:
                raise UserError(f"part = {part!r} is a part of the training data, but other data are named")
            return "files", tuple(whole(read(series)) for series in self._read(_paths(data)))
        parts = read_parts(self.spec.data, seed=self.spec.seed)
        part = part or ("test" if parts.test else "validation")
        if part not in ("validation", "test"):
            raise UserError(f"part = {part!r} is not known", fix="choose validation or test")
        if not getattr(parts, part):
            raise UserError(f"the data have no {part} part", fix="give data.split three parts, or name data.test")
        return f"{part} part", getattr(parts.mapped(read), part)

    def _read(self, paths: Sequence[str]) -> list[Series]:
        found = read_files(self.spec.data, paths)
        if self.spec.objective.of_bits:
            for series in found:
                refuse_no_bits(series)
        return found

    # ---------------------------------------------------------------- what comes next

    def forecast(
        self,
        series: Series | Sequence[float] | np.ndarray[Any, Any],
        *,
        horizon: int | None = None,
        origin: int | None = None,
        levels: Sequence[float] = LEVELS,
        draw: int | None = None,
    ) -> Ahead:
        """A series in memory, continued: after its end, or from row `origin` on; with a seed `draw`, by chance."""
        if not isinstance(series, Series):
            series = make_series(np.asarray(series, dtype=np.float64), channels=self.known.channels)
        return go_on(
            self.model,
            self.spec,
            self.known,
            series,
            origin=last_seen(series) if origin is None else origin,
            horizon=horizon or self.spec.forecast.horizon,
            levels=levels,
            device=self.device,
            draw=draw,
        )

    def generate(
        self,
        prompt: str = "",
        *,
        tokens: int | None = None,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
    ) -> str:
        """`tokens` moments that come after the values of a prompt, or after the end of the data; a line for each.

        A recursive model draws one future; at temperature 0, and of a model that has none to draw, it is the mean.
        """
        if prompt.strip() and self.known.covariates:
            raise UserError(
                f"this run reads {', '.join(self.known.covariates)} beside its values, also of the future",
                fix=f"put all of it into a file: statewise predict {self.path} FILE",
            )
        if tokens is not None and tokens < 1:
            raise UserError(f"tokens = {tokens} is not valid, expected 1 or more")
        sampling = sampling or Sampling()
        if prompt.strip():
            series = series_of(prompt, self.known.channels)
        else:
            series = self._chosen(None, None, scaled=False)[1][-1].series
        ahead = self.forecast(series, horizon=tokens, levels=(), draw=sampling.seed if sampling.temperature else None)
        return "\n".join(",".join(f"{value:.10g}" for value in moment) for moment in ahead.mean_HC)

    def predict(self, data: str | Path | Sequence[str]) -> Iterator[dict[str, Any]]:
        """Each series of the files, continued: a row for every moment and channel. Standard input is a CSV."""
        for path in _paths(data):
            with at_rest(path, ending=_TABLE) as file:
                found = self._read([file])
            for series in found:
                ahead = self.forecast(series)
                for step, moment in enumerate(ahead.time_H):
                    for channel, name in enumerate(self.known.channels):
                        quantiles = {
                            f"{q:g}": number(ahead.quantile_HCQ[step, channel, i]) for i, q in enumerate(ahead.levels)
                        }
                        yield {
                            "file": path,
                            "series": series.id,
                            "time": moment_of(moment),
                            "channel": name,
                            "step": step + 1,
                            "mean": float(ahead.mean_HC[step, channel]),
                            "quantiles": quantiles or None,
                        }

    def predict_lines(self, data: str | Path | Sequence[str]) -> Iterator[str]:
        """Rows that could be appended to each file: its own columns, in its own order; what is unknown stays empty."""
        for path in _paths(data):
            with at_rest(path, ending=_TABLE) as file:
                forecasts = [(series, self.forecast(series)) for series in self._read([file])]
                yield from appended(file, forecasts, data=self.spec.data, known=self.known)

    def interpolate(self, data: str | Path | Sequence[str]) -> Iterator[dict[str, Any]]:
        """Every missing value of the files, a row each: filled from both sides, and by a forecast from before alone.

        `mean` is None before the first value of a series: nothing was known yet.
        """
        for path in _paths(data):
            with at_rest(path, ending=_TABLE) as file:
                found = self._read([file])
            for series in found:
                filled, forward = fill(self.model, self.spec, self.known, series, device=self.device)
                for row, channel in np.argwhere(np.isnan(series.values_TC[: last_seen(series)])):
                    yield {
                        "file": path,
                        "series": series.id,
                        "time": moment_of(series.time_T[row]),
                        "channel": series.channels[channel],
                        "mean": number(filled[row, channel]),
                        "forecast": number(forward[row, channel]),
                    }

    # ---------------------------------------------------------------- pictures

    def plot(
        self,
        path: str | Path,
        *,
        what: Literal["forecast", "error"] = "forecast",
        part: Part | None = None,
        channel: str | None = None,
        origin: int | None = None,
    ) -> Path:
        """A forecast of held-out rows, or the error against k: an SVG, PNG, PDF or CSV, by the ending of `path`."""
        if what == "error":
            return save_plot(
                Path(path), Shown(errors=self._curves(part), title=f"{self.spec.name}: error along the way")
            )
        name, spans = self._chosen(None, part, scaled=False)
        span, horizon = spans[0], self.spec.forecast.horizon
        context = self.spec.forecast.context if isinstance(self.spec.forecast.context, int) else 4 * horizon
        at = max(span.begin, min(span.reach + context, span.end - 1)) if origin is None else origin
        if not 0 < at < span.end:
            raise UserError(f"origin = {at} is not a row of the {name}, which ends at {span.end}")
        ahead = self.forecast(span.series, origin=at, horizon=min(horizon, span.end - at))
        channel = channel or self.known.channels[0]
        if channel not in self.known.channels:
            raise UserError(f"there is no channel {channel!r}", fix=f"choose one of {', '.join(self.known.channels)}")
        column = self.known.channels.index(channel)
        begin = max(0, at - max(4 * horizon, min(context, 8 * horizon)))
        shown = slice(begin, at + len(ahead.time_H))
        return save_plot(
            Path(path),
            Shown(
                title=f"{self.spec.name}: {channel}, {name}",
                unit=channel,
                time=span.series.time_T[shown],
                truth=span.series.values_TC[shown, column],
                ahead_time=ahead.time_H,
                mean=ahead.mean_HC[:, column],
                quantiles={q: ahead.quantile_HCQ[:, column, i] for i, q in enumerate(ahead.levels)},
            ),
        )

    def _curves(self, part: Part | None) -> Mapping[str, Sequence[float]]:
        found = self.evaluate(part=part)
        if not found.curve:
            raise UserError("this run has no error against the distance: its moments are bits")
        return {self.spec.name: found.curve, **{name: one["mse_at"] for name, one in found.baselines.items()}}


def _paths(data: str | Path | Sequence[str]) -> list[str]:
    return [str(data)] if isinstance(data, str | Path) else [str(one) for one in data]

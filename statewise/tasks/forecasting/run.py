"""A trained forecaster, opened."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import numpy as np

from statewise.core import Machine
from statewise.data import (
    Data,
    Series,
    Span,
    as_temporary_file,
    file_names,
    make_series,
    series_arrays,
    source_name,
    spooled,
    whole_span,
)
from statewise.decoding import Sampling
from statewise.models import DirectForecaster, Forecaster, RecursiveForecaster
from statewise.specs import ForecastingSpec, SeriesDataSpec, UserError, option
from statewise.tasks.answers import Answers
from statewise.tasks.folder import Opened
from statewise.tasks.forecasting.ahead import Ahead, Interpolation, fill, filled_holes, go_on, last_seen
from statewise.tasks.forecasting.answer import appended, array_like, frame_ahead, rows_ahead, rows_filled, series_of
from statewise.tasks.forecasting.evaluation import STEPS, ForecastEvaluation, evaluate_whole, evaluate_windows
from statewise.tasks.forecasting.examples import as_read, read_files, read_parts, series_in
from statewise.tasks.forecasting.exposure import forecast_gap, gap_windows
from statewise.tasks.forecasting.job import build_of
from statewise.tasks.forecasting.known import Known, refuse_no_bits
from statewise.tasks.forecasting.plot import Shown, check_path, example_course, held_out_forecast, save_plot
from statewise.tasks.forecasting.portable import portable
from statewise.tasks.forecasting.specimens import ForecastingSpecimens
from statewise.tasks.forecasting.stationarity import SEEDS, Stationarity, of_data
from statewise.tasks.portable import Portable
from statewise.tasks.report import of_this_run
from statewise.tasks.run import OrderedRun, PredictingRun, SelfReadingRun, named
from statewise.training import ExposureGap

Part = Literal["validation", "test"]
LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
_TABLE = ".csv"  # what standard input is taken for


@final
class ForecastingRun(PredictingRun, SelfReadingRun, OrderedRun):
    """A trained forecaster of time series.

    >>> run = sw.load("runs/forecasting")
    >>> run.evaluate(part="validation").mse > 0, [fold.windows > 0 for fold in run.backtest(folds=2)]
    (True, [True, True])
    >>> ahead = run.forecast([20.0, 21.0, 22.0] * 8, horizon=4)
    >>> ahead.mean_HC.shape, run.generate("20 21 22 " * 8, tokens=2).count("\\n")
    ((4, 1), 1)
    >>> row = run.predict("series.csv")[0]
    >>> row["channel"], row["step"], next(run.predict_lines("series.csv"))
    ('load', 1, 'date,load')
    >>> list(run.interpolate("series.csv")), run.interpolation(gap=2, holes=3).holes  # the file has no missing value
    ([], 3)
    >>> run.plot("error.csv", what="error").name
    'error.csv'
    >>> run.with_settings(["forecast.horizon=2"]).spec.forecast.horizon, len(run.exposure_gap(rows=4).gap_T) > 0
    (2, True)
    >>> run.specimens().source
    'the test part'
    >>> run.stationarity(seeds=(0, 1)).blocks > 0
    True
    """

    _evaluation = ForecastEvaluation
    _changeable: ClassVar[Mapping[str, tuple[str, ...]]] = {"forecast": ("horizon", "stride", "paths")}

    spec: ForecastingSpec
    model: Forecaster

    def _open(self, opened: Opened) -> Forecaster:
        self.known = Known.from_json(opened.text("series.json"), where=opened.verified)
        return opened.model(lambda: build_of(self.spec, self.known))

    def sizes(self) -> dict[str, Any]:
        forecast = self.spec.forecast
        return {**self.spec.model.sizes(), "context": forecast.context, "horizon": forecast.horizon}

    # ---------------------------------------------------------------- figures

    @of_this_run
    def evaluate(
        self,
        data: Data | None = None,
        *,
        part: Part | None = None,
        steps: Sequence[int] = STEPS,
    ) -> ForecastEvaluation:
        """Errors of the forecasts, beside those of naive ones, in units of the training part's deviation.

        On the test part if there is one, else on the validation part, or on `part`; or on `data`, whole series. Where
        each series has a scale of its own, one that training did not see is scaled by the context before its first
        forecast.
        """
        if self.spec.forecast.horizon < self.model.at_once and (self.known.covariates or self.spec.data.time_features):
            raise UserError(
                f"this model reads the covariates of all {self.model.at_once} time steps that it forecasts at once, "
                f"and cannot be evaluated on {self.spec.forecast.horizon}",
                fix="evaluate it at its own horizon: the errors at fewer steps are among its metrics",
            )
        name, spans, known = self._chosen(data, part)
        if self.spec.forecast.context == "all":
            assert isinstance(self.model, RecursiveForecaster)
            return evaluate_whole(self.model, self.spec, known, spans=spans, part=name, device=self.device, steps=steps)
        return evaluate_windows(self.model, self.spec, known, spans=spans, part=name, device=self.device, steps=steps)

    def stationarity(self, data: Data | None = None, *, seeds: Sequence[int] = SEEDS) -> Stationarity:
        """Train small models with and without the time as input, for each seed: does the series change with time?"""
        if data is not None:
            raise UserError(
                f"{option('stationarity')} trains small models of its own on the run's series",
                fix=f"leave out {option('data')}",
            )
        return of_data(self.spec.data, seed=self.spec.seed, seeds=seeds)

    def backtest(
        self,
        *,
        folds: int = 5,
        part: Part | None = None,
        data: Data | None = None,
    ) -> list[ForecastEvaluation]:
        """Evaluate `folds` consecutive stretches of the held-out time, one by one: does the error grow later on?"""
        if isinstance(self.spec.forecast.context, str):
            raise UserError("a run with forecast.context = all reads whole series: there are no origins to roll")
        name, spans, known = self._chosen(data, part)
        evaluations = []
        for fold in range(folds):
            cut = [
                span._replace(
                    begin=span.begin + (span.end - span.begin) * fold // folds,
                    end=span.begin + (span.end - span.begin) * (fold + 1) // folds,
                )
                for span in spans
            ]
            stretch = f"{name}, stretch {fold + 1} of {folds}"
            evaluations.append(
                evaluate_windows(self.model, self.spec, known, spans=cut, part=stretch, device=self.device)
            )
        return evaluations

    def interpolation(
        self,
        *,
        gap: int = 8,
        holes: int = 50,
        part: Part | None = None,
        data: Data | None = None,
    ) -> Interpolation:
        """Remove stretches of `gap` values from the held-out series, fill them in, and compare with the truth."""
        _, spans, known = self._chosen(data, part, scaled=False)
        return filled_holes(self.model, self.spec, known, spans, gap=gap, holes=holes, device=self.device)

    def specimens(self, data: Data | None = None, *, text: str | None = None) -> ForecastingSpecimens:
        if text is not None:
            raise UserError(
                "this run forecasts series, and was given a text", fix=f"name a file: {option('data', 'FILE')}"
            )
        name, spans, known = self._chosen(data, None)
        source = f"the {name}" if data is None else source_name(data)
        return ForecastingSpecimens(self.model, spans, spec=self.spec, known=known, source=source, device=self.device)

    def answers(self) -> Answers:
        return Answers(course=example_course(self.forecast, self.spec))

    @property
    def machine(self) -> Machine[Any] | None:
        if isinstance(self.model, RecursiveForecaster):
            return self.model.machine
        assert isinstance(self.model, DirectForecaster)
        return self.model.reader.layers.machine

    def portable(self) -> Portable:
        return portable(self.model, self.spec, self.known)

    def exposure_gap(
        self,
        data: Data | None = None,
        *,
        rows: int = 128,
        choice: Literal["sample", "best"] = "best",
        seed: int = 0,
        part: Part | None = None,
    ) -> ExposureGap:
        """How much the loss of each next value rises when the model reads its own forecasts; `rows` windows."""
        model, context = self.model, self.spec.forecast.context
        if not isinstance(model, RecursiveForecaster):
            raise UserError(
                "this run forecasts its whole horizon at once and reads nothing of its own: it has no exposure gap",
                fix="train with forecast.mode = recursive to compare",
            )
        _, spans, _ = self._chosen(data, part)
        return forecast_gap(
            model,
            *gap_windows(self.spec, spans, rows=rows),
            context=1 if isinstance(context, str) else context,
            sample=choice == "sample",
            device=self.device,
            seed=seed,
        )

    def _chosen(
        self, data: Data | None, part: Part | None, *, scaled: bool = True
    ) -> tuple[str, tuple[Span, ...], Known]:
        """The series that metrics are computed on, scaled or in original units. Other files need no training data."""
        if data is not None:
            if part is not None:
                raise UserError(f"part = {part!r} is a part of the training data, but other data are named")
            name, spans = "files", tuple(map(whole_span, self._series(data)))
        else:
            parts = read_parts(self.spec.data, seed=self.spec.seed)
            part = part or ("test" if parts.test else "validation")
            if part not in ("validation", "test"):
                raise UserError(f"part = {part!r} is not known", fix="choose validation or test")
            if not getattr(parts, part):
                raise UserError(f"the data have no {part} part", fix="give data.split three parts, or name data.test")
            name, spans = f"{part} part", getattr(parts, part)
        context = self.spec.forecast.context
        read = 0 if isinstance(context, str) else context
        known = self.known.with_series((span.series, max(span.begin, span.reach + read)) for span in spans)
        if scaled:
            spans = tuple(span._replace(series=as_read(span.series, self.spec.data, known)) for span in spans)
        return name, spans, known

    def _series(self, data: Data) -> list[Series]:
        """What files, a table or arrays hold; arrays have the channels of the training data."""
        paths = file_names(data)
        return self._series_held(data) if paths is None else self._read(paths, self.spec.data)

    def _series_held(self, data: Data) -> list[Series]:
        """Of data in memory: a text that looks like a path is only a text."""
        arrays = series_arrays(data)
        if arrays is None:
            with as_temporary_file(self.spec, data) as file:
                return self._read(file.paths, file.data)
        return self._checked(series_in(arrays, self.known.channels, missing=self.spec.data.missing))

    def _read(self, paths: Sequence[str], data: SeriesDataSpec) -> list[Series]:
        return self._checked(read_files(data, paths))

    def _checked(self, all_series: list[Series]) -> list[Series]:
        if self.spec.objective.of_bits:
            for series in all_series:
                refuse_no_bits(series)
        return all_series

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
        """Forecast a series in memory: after its end, or from row `origin` on; with a seed `draw`, a sampled future."""
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

    def _generate(self, prompt: str, tokens: int | None, sampling: Sampling, stop: Sequence[str]) -> str:
        """Forecast `tokens` time steps after the values of a prompt, or after the end of the data; a line for each.

        A recursive model samples one future. At temperature 0, or for any other model, it is the mean.
        """
        if prompt.strip() and self.known.covariates:
            raise UserError(
                f"this run reads {', '.join(self.known.covariates)} beside its values, also of the future",
                fix=f"put all of it into a file: statewise predict {self.path} FILE",
            )
        if tokens is not None and tokens < 1:
            raise UserError(f"tokens = {tokens} is not valid, expected 1 or more")
        if prompt.strip():
            series = series_of(prompt, self.known.channels)
        else:
            series = self._chosen(None, None, scaled=False)[1][-1].series
        ahead = self.forecast(series, horizon=tokens, levels=(), draw=sampling.seed if sampling.temperature else None)
        return "\n".join(",".join(f"{value:.10g}" for value in row_C) for row_C in ahead.mean_HC)

    def predict(self, data: Data) -> Any:
        """Means of what comes next, in the form of `data`: `[T, C]` gives `[horizon, C]`, a frame gives a frame.

            run.predict(np.sin(np.arange(200)))  # an array [horizon]

        Of several series, `[N, T, C]` or a list of arrays, there are as many answers. `forecast` has quantiles too.
        """
        if file_names(data) is not None:
            return list(self.predict_rows(data))
        if series_arrays(data) is not None:
            return array_like(data, [self.forecast(series).mean_HC for series in self._series(data)])
        with as_temporary_file(self.spec, data) as file:
            forecasts = [(series, self.forecast(series)) for series in self._read(file.paths, file.data)]
            return frame_ahead(data, file.paths[0], forecasts, spec=file.data, known=self.known)

    def _rows(self, paths: Sequence[str], data: SeriesDataSpec) -> Iterator[dict[str, Any]]:
        """Each series of the files, continued: a row for every time step and channel. Standard input is a CSV."""
        for path in paths:
            with spooled(path, ending=_TABLE) as file:
                all_series = self._read([file], data)
            for series in all_series:
                yield from ({"file": path, **row} for row in rows_ahead(series, self.forecast(series)))

    def _rows_held(self, data: Data) -> list[dict[str, Any]]:
        return [row for series in self._series_held(data) for row in rows_ahead(series, self.forecast(series))]

    def predict_lines(self, data: str | Path | Sequence[str | Path]) -> Iterator[str]:
        """Rows that could be appended to each file: its own columns, in its own order; what is unknown stays empty."""
        for path in named(data):
            with spooled(path, ending=_TABLE) as file:
                forecasts = [(series, self.forecast(series)) for series in self._read([file], self.spec.data)]
                yield from appended(file, forecasts, data=self.spec.data, known=self.known)

    def interpolate(self, data: Data) -> Iterator[dict[str, Any]]:
        """Fill in the missing values of `data`: a dictionary for each, from both sides and by a forecast alone.

        `mean` is None before the first value of a series.
        """
        paths = file_names(data)
        for series in self._series(data) if paths is None else ():
            yield from self._filled(series)
        for path in paths or ():
            with spooled(path, ending=_TABLE) as file:
                all_series = self._read([file], self.spec.data)
            for series in all_series:
                yield from ({"file": path, **row} for row in self._filled(series))

    def _filled(self, series: Series) -> Iterator[dict[str, Any]]:
        return rows_filled(series, *fill(self.model, self.spec, self.known, series, device=self.device))

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
        """Draw a held-out forecast, or the error against the steps ahead, as SVG, PNG or PDF, or write it as CSV."""
        check_path(Path(path))
        if what == "error":
            title = f"{self.spec.name}: error along the way"
            return save_plot(Path(path), Shown(errors=self._curves(part), title=title))
        name, spans, _ = self._chosen(None, part, scaled=False)
        shown = held_out_forecast(self.forecast, spans[0], spec=self.spec, part=name, channel=channel, origin=origin)
        return save_plot(Path(path), shown)

    def _curves(self, part: Part | None) -> Mapping[str, Sequence[float]]:
        evaluation = self.evaluate(part=part)
        if not evaluation.curve:
            raise UserError("this run has no error against the distance: its time steps are bits")
        return {
            self.spec.name: evaluation.curve,
            **{name: baseline["mse_at"] for name, baseline in evaluation.baselines.items()},
        }

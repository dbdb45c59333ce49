"""Series under a lens: windows of them, or each from its beginning.

N copies of a row, L context, T time steps of a row, H ahead, C channels, Q questions, W windows.
"""

from itertools import pairwise
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.data import SeriesRows, Span, series_rows
from statewise.models import DirectForecaster, Forecaster, Head, Past, RecursiveForecaster
from statewise.specs import ForecastingSpec
from statewise.tasks.forecasting.evaluation import sampled
from statewise.tasks.forecasting.examples import Prepared, carried, prepare
from statewise.tasks.forecasting.job import as_prepared, as_sequence, cut, evaluation_windows, one_step
from statewise.tasks.forecasting.known import Known
from statewise.tasks.specimen import (
    Courses,
    Floats,
    Poll,
    ReaderParts,
    Specimen,
    Specimens,
    Words,
    position,
    seen_order,
)

_VALUES = 1 << 18  # of windows whose errors are asked for, at most
_LONGEST = 4096  # time steps of a whole series that are looked at in one go
_CHANNELS = 8  # that units are compared with

_WORDS = Words("time step", "time step", "", "time steps before the one that is forecast", "time step", classes=False)


@final
class ForecastingSpecimens(Specimens):
    has_truth = True
    model: Forecaster

    def __init__(
        self,
        model: Forecaster,
        spans: tuple[Span, ...],
        *,
        spec: ForecastingSpec,
        known: Known,
        source: str,
        device: torch.device,
    ) -> None:
        self.model, self.source, self._spans, self._spec, self._known = model, source, spans, spec, known
        self._device = device
        self._whole = spec.forecast.context == "all"
        self._windows = None if self._whole else evaluation_windows(spec, spans, most=_VALUES)
        self._pieces_of_series = [piece for span in spans for piece in _cut_up(span)] if self._whole else []
        self.words = _WORDS._replace(loss=_loss(model))

    def __len__(self) -> int:
        return len(self._pieces_of_series) if self._windows is None else self._windows.windows

    def length(self, number: int) -> int:
        forecast = self._spec.forecast
        if self._windows is None:
            span = self._pieces_of_series[number]
            return span.end - span.begin - 1
        assert isinstance(forecast.context, int)
        return forecast.context + (0 if forecast.mode == "direct" else forecast.horizon - 1)

    def at(self, number: int) -> Specimen:
        if self._windows is None:
            span = self._pieces_of_series[number]
            prepared, first = as_prepared(series_rows([cut(span)])), span.begin
            name = f"{span.series.id} from {span.series.time_T[span.begin]}"
            asked_from = 0
        else:
            batch = self._windows.at(number)
            prepared = prepare(batch)
            series = self._spans[int(batch.span_B[0])].series
            origin = int(batch.origin_B[0])
            name, first = f"{series.id} before {series.time_T[origin]}", -batch.context
            asked_from = batch.context - 1
        like = next(self.model.parameters())
        past, target = prepared.to(self._device)
        prepared = Prepared(
            Past(past.values_BLC.to(like), past.observed_BLC, past.covariates_BTX.to(like)), target.to(like)
        )
        match self.model:
            case DirectForecaster():
                return self._direct(name, self.model, prepared)
            case RecursiveForecaster():
                return self._recursive(name, self.model, prepared, first, asked_from)
            case _:
                raise AssertionError(f"a forecaster is direct or recursive, not {type(self.model).__name__}")

    # ---------------------------------------------------------------- all at once

    def _direct(self, name: str, model: DirectForecaster, prepared: Prepared) -> Specimen:
        parts, (past, target_1HC) = ReaderParts(model.reader), prepared
        context, horizon = model.context, model.horizon

        def told(x_NLC: Tensor) -> Past:
            return Past(
                x_NLC,
                past.observed_BLC.expand(len(x_NLC), -1, -1),
                past.covariates_BTX.expand(len(x_NLC), -1, -1),
            )

        def spoken(y_NLD: Tensor, x_NLC: Tensor) -> tuple[Any, Tensor]:
            return model.parameters_of(parts.encoded(y_NLD).summary_BC, told(x_NLC))

        def judge(y_NLD: Tensor, x_NLC: Tensor) -> Tensor:
            params, shift_NHC = spoken(y_NLD, x_NLC)
            cost_NF = _costs(model.head, params, (target_1HC - shift_NHC).flatten(1))
            return cost_NF.view(shift_NHC.shape).mean(-1)

        def answer(y_NLD: Tensor, x_NLC: Tensor) -> Tensor:
            params, shift_NHC = spoken(y_NLD, x_NLC)
            return model.head.mean(params).view(shift_NHC.shape) + shift_NHC

        x_LC = past.values_BLC[0]
        return Specimen(
            name=name,
            pieces=tuple(str(t - context) for t in range(context)),
            x_TE=x_LC,
            enter=lambda x_NLC: model.reader.admit(model.reader.entry(model.inputs(told(x_NLC)))),
            read=parts.read,
            judge=judge,
            answer=answer,
            questions=tuple(f"{k + 1} ahead" for k in range(horizon)),
            distance=lambda question: (context + question - np.arange(context)).astype(np.float64),
            machine=parts.machine,
            readers=parts.readers,
            signals=self._signals(x_LC),
            seen_order=seen_order,
        )

    # ---------------------------------------------------------------- one after the other

    def _recursive(
        self, name: str, model: RecursiveForecaster, prepared: Prepared, first: int, asked_from: int
    ) -> Specimen:
        machine = model.machine
        _, all_1TC, seen_1TC = as_sequence(model, prepared)
        x_TC, next_1TX = all_1TC[0, :-1], prepared.past.covariates_BTX[:, 1:]
        wanted_1QC, there_1QC = all_1TC[:, 1 + asked_from :], seen_1TC[:, 1 + asked_from :]
        places = len(x_TC)

        def enter(x_NTC: Tensor) -> Tensor:
            count = len(x_NTC)
            return model.inputs(
                x_NTC, seen_1TC[:, :-1].expand(count, -1, -1), next_1TX[:, :places].expand(count, -1, -1)
            )

        def judge(y_NTD: Tensor, x_NTC: Tensor) -> Tensor:
            params, shift = model.distribution(y_NTD[:, asked_from:])
            wanted_NQC = (wanted_1QC - shift).expand(len(y_NTD), -1, -1)
            loss = _costs(model.head, params, wanted_NQC.masked_fill(~there_1QC, torch.nan))
            return loss if loss.dim() == 2 else loss.mean(-1)

        def answer(y_NTD: Tensor, x_NTC: Tensor) -> Tensor:
            params, shift = model.distribution(y_NTD[:, asked_from:])
            return model.head.mean(params) + shift

        asked = range(asked_from, places)
        return Specimen(
            name=name,
            pieces=tuple(str(first + t) for t in range(places)),
            x_TE=x_TC,
            enter=enter,
            read=lambda z_NTI: machine(z_NTI)[0],
            judge=judge,
            answer=answer,
            questions=tuple(f"time step {first + t + 1}" for t in asked),
            # What comes after the time step just before the forecast has no say in it.
            distance=lambda question: _not_after((asked[question] + 1 - np.arange(places)).astype(np.float64)),
            machine=machine,
            signals=self._signals(x_TC),
        )

    def _signals(self, x_TC: Tensor) -> dict[str, NDArray[np.float32]]:
        values_TC = x_TC.float().cpu().numpy()
        shared = self._spec.data.channels == "shared"
        names = ["the series"] if shared or values_TC.shape[1] == 1 else list(self._known.channels)
        signals = {name: values_TC[:, at] for at, name in enumerate(names[:_CHANNELS])}
        change_TC = np.diff(values_TC, axis=0, prepend=values_TC[:1])
        changes = {f"change of {name}": change_TC[:, at] for at, name in enumerate(names[:_CHANNELS])}
        return {**signals, **changes, "position": position(len(values_TC))}

    # ---------------------------------------------------------------- of all rows

    def answers(self, poll: Poll) -> Courses:
        if self._windows is None:
            assert isinstance(self.model, RecursiveForecaster)
            return self._frames(self.model, poll)
        spec, paths = self._spec, sampled(self._spec)
        first_row = 0
        losses, naive, origins, rows = [], [], [], []
        for batch in self._windows:
            poll()
            prepared = prepare(batch).to(self._device)
            forecast = self.model.forecast(
                prepared.past, horizon=spec.forecast.horizon, paths=paths, seed=spec.seed, first_row=first_row
            )
            first_row += len(forecast.mean_BHC)
            losses.append(_squared(forecast.mean_BHC, prepared.target_BHC))
            naive.append(_squared(prepared.past.values_BLC[:, -1:].expand_as(prepared.target_BHC), prepared.target_BHC))
            origins.append(batch.origin_B.numpy())
            rows.append(batch.span_B.numpy())
        together = [np.concatenate(one) for one in (losses, naive, origins, rows)]
        return Courses(together[0], "squared error", together[1], together[2], together[3])

    @torch.no_grad()
    def _frames(self, model: RecursiveForecaster, poll: Poll) -> Courses:
        """One step ahead at every time step."""
        bits = self._spec.objective.of_bits
        losses, naive, origins, rows = [], [], [], []
        for number, span in enumerate(self._spans):
            if span.end - span.begin < 2:
                continue
            poll()
            read: SeriesRows = series_rows([cut(span)])
            prepared = as_prepared(read).to(self._device)
            if bits:
                _, all_1TC, seen_1TC = as_sequence(model, prepared)
                x_1TI = as_sequence(model, prepared)[0]
                params, _ = model.distribution(model.machine(x_1TI)[0])
                wanted_1TC = all_1TC[:, 1:].masked_fill(~seen_1TC[:, 1:], torch.nan)
                losses.append(_costs(model.head, params, wanted_1TC)[0].double().cpu().numpy())
            else:
                mean_1TC, truth_1TC = one_step(model, prepared)
                losses.append(_squared(mean_1TC, truth_1TC)[0])
                before_1TC = carried(read.values_BTC, read.observed_BTC)[:, :-1].to(self._device)
                naive.append(_squared(before_1TC, truth_1TC)[0])
            origins.append(np.arange(span.begin + 1, span.end))
            rows.append(np.full(span.end - span.begin - 1, number))
        loss_W1 = np.concatenate(losses)[:, None]
        naive_W1 = np.concatenate(naive)[:, None] if naive else None
        loss = "nats a frame" if bits else "squared error"
        return Courses(loss_W1, loss, naive_W1, np.concatenate(origins), np.concatenate(rows))


def _loss(model: Forecaster) -> str:
    match model:
        case DirectForecaster() | RecursiveForecaster():
            return {"nats": "nats", "pinball": "pinball loss"}.get(model.head.loss, model.head.loss.replace("_", " "))
        case _:
            raise AssertionError(type(model).__name__)


def _costs(head: Head[Any], params: Any, target: Tensor) -> Tensor:
    """The head's loss, 0 where nothing was observed: no gradient may come from there."""
    there = ~target.isnan()
    loss = head.nats(params, torch.where(there, target, torch.zeros_like(target)))
    kept = there if loss.dim() == target.dim() else there.all(-1)
    return torch.where(kept, loss, torch.zeros_like(loss))


def _squared(forecast: Tensor, truth: Tensor) -> Floats:
    """In units of the training part's deviation, the mean over channels that were observed."""
    error: Floats = (forecast - truth).double().square().nanmean(-1).cpu().numpy()
    return error


def _not_after(distance_T: Floats) -> Floats:
    return np.where(distance_T > 0, distance_T, np.nan)


def _cut_up(span: Span) -> list[Span]:
    """A long series in parts, each read afresh; none shorter than two time steps."""
    parts = max(1, -(-(span.end - span.begin) // _LONGEST))
    edges = np.linspace(span.begin, span.end, parts + 1).astype(int).tolist()
    return [span._replace(begin=a, end=b, reach=a) for a, b in pairwise(edges) if b - a > 1]

"""What is read of series for forecasting: parts, seasons, holes; and errors tallied as the metrics count them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from statewise.data.embedded.series import embedded_series, seasonal, switching
from statewise.data.series import make_series
from statewise.data.series_preprocessing import Scaling
from statewise.data.series_time import next_times
from statewise.data.series_window import RollingOrigin
from statewise.data.split import SeriesParts, split_rows, split_whole, whole_span
from statewise.specs import ForecastingSpec, SeriesDataSpec, UserError, parse_spec
from statewise.tasks.forecasting.errors import Tally, baseline_errors, frame_nats
from statewise.tasks.forecasting.examples import carried, prepare, read_parts
from statewise.tasks.forecasting.job import ForecastingJob
from statewise.tasks.forecasting.known import Known, Units, guess_period, learn
from statewise.training import Parallel

CPU = Parallel(device=torch.device("cpu"))


def spec(**tables: Any) -> ForecastingSpec:
    made = parse_spec({"task": "forecasting", "model": {"width": 4}, **tables})
    assert isinstance(made, ForecastingSpec)
    return made


# ------------------------------------------------------------------ seasons


@pytest.mark.parametrize(
    ("series", "period"),
    [
        (seasonal(2000), 24),
        (seasonal(2000, periods=(7.0,), amplitudes=(1.0,)), 7),
        (seasonal(2000, periods=(12.0,), amplitudes=(3.0,), noise=0.5), 12),
        (seasonal(2000, periods=(24.0, 48.0), amplitudes=(1.0, 0.5), noise=0.01), 24),
        (switching(2000, coefficients=(0.9,)), 1),
        (make_series(np.random.default_rng(0).standard_normal(2000)), 1),
        (make_series(np.cumsum(np.random.default_rng(0).standard_normal(2000))), 1),
        (make_series(np.arange(50.0)), 1),
        (make_series(np.ones(3)), 1),
    ],
    ids=["day", "week", "year", "a day, not two", "autoregression", "noise", "walk", "line", "nothing"],
)
def test_a_season_is_found_where_there_is_one(series: Any, period: int) -> None:
    assert guess_period([whole_span(series)]) == period


def beside_noise(*, period: int, deviation: float, channels: int, rows: int = 3000) -> NDArray[np.float64]:
    """A season in the first of some channels, the others noise."""
    generator = np.random.default_rng(0)
    values_TC = deviation * generator.standard_normal((rows, channels))
    values_TC[:, 0] += np.sin(2 * np.pi * np.arange(rows) / period)
    return values_TC


@pytest.mark.parametrize(
    ("values_TC", "period"),
    [
        (beside_noise(period=96, deviation=0.1, channels=1), 96),
        (beside_noise(period=96, deviation=0.1, channels=3), 96),
        (beside_noise(period=48, deviation=0.5, channels=2), 48),
        (beside_noise(period=2, deviation=0.1, channels=1)[:, :1] + np.resize([1.0, -1.0], (3000, 1)), 2),
        (beside_noise(period=2500, deviation=0.1, channels=3), 1),
    ],
    ids=["quarters of an hour", "beside noise", "half hours in noise", "in turns", "slower than can be seen"],
)
def test_a_season_is_found_where_noise_hides_it_from_one_row_to_the_next(
    values_TC: NDArray[np.float64], period: int
) -> None:
    assert guess_period([whole_span(make_series(values_TC))]) == pytest.approx(period, rel=0.02)


@pytest.mark.parametrize("seed", range(8))
def test_no_season_is_made_of_chance(seed: int) -> None:
    noise_TC = np.random.default_rng(seed).standard_normal((1000, 2))
    walk_TC = np.cumsum(noise_TC, axis=0)
    for values_TC in (noise_TC, walk_TC, walk_TC + 5 * noise_TC[::-1]):
        assert guess_period([whole_span(make_series(values_TC))]) == 1


def test_a_season_is_found_beside_holes() -> None:
    values = seasonal(1000).values_TC.copy()
    values[::13] = np.nan
    assert guess_period([whole_span(make_series(values))]) == 24


# ------------------------------------------------------------------ reading


def test_parts_by_counts_shares_files_and_as_filed(tmp_path: Path) -> None:
    for name, length in (("a", 50), ("b", 20), ("c", 10)):
        np.save(tmp_path / f"{name}.npy", np.arange(float(length)))
    files = {name: str(tmp_path / f"{name}.npy") for name in "abc"}

    def sizes(**data: Any) -> list[int]:
        parts = read_parts(SeriesDataSpec(**data))
        return [sum(span.end - span.begin for span in part) for part in parts[:3]]

    assert sizes(length=100) == [70, 10, 20]
    assert sizes(train=files["a"]) == [35, 5, 10]
    assert sizes(train=files["a"], split="20/10/5") == [20, 10, 5]
    assert sizes(train=files["a"], validation=files["b"]) == [50, 20, 0]
    assert sizes(train=files["a"], validation=files["b"], test=files["c"]) == [50, 20, 10]
    assert sizes(train=files["a"], test=files["c"]) == [45, 5, 10]
    assert sizes(train=[files["a"], files["b"], files["c"]], split="whole:0.4/0.3/0.3")[0] in (50, 20, 10)
    np.savez(tmp_path / "filed.npz", train=np.zeros(30), valid=np.zeros(8), test=np.zeros(6))
    assert sizes(train=str(tmp_path / "filed.npz")) == [30, 8, 6]
    with pytest.raises(UserError, match="has a third part"):
        sizes(train=files["a"], test=files["c"], split="0.5/0.2/0.3")
    with pytest.raises(UserError, match=r"name data\.train"):
        sizes(targets="x")


def test_what_was_learnt_survives_the_folder() -> None:
    parts = read_parts(SeriesDataSpec(series="lorenz", length=300))
    known = learn(spec(data={"series": "lorenz", "length": 300}), parts)
    assert Known.from_json(known.to_json(), where=Path("x")) == known
    assert known.scaling.mean_C[0] == pytest.approx(float(parts.train[0].series.values_TC[:210, 0].mean()))
    assert known.until == 210
    with pytest.raises(UserError, match="not what a forecasting run writes"):
        Known.from_json("{}", where=Path("x"))


def test_a_missing_value_is_the_last_one_seen() -> None:
    values = torch.tensor([[[9.0], [1.0], [9.0], [9.0], [2.0], [9.0]]])
    observed = torch.tensor([[[False], [True], [False], [False], [True], [False]]])
    assert carried(values, observed).flatten().tolist() == [1.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    none = torch.zeros(1, 3, 1, dtype=torch.bool)
    assert carried(torch.zeros(1, 3, 1), none).flatten().tolist() == [0.0] * 3


def test_targets_that_are_missing_stay_so() -> None:
    values = np.arange(10.0)
    values[[2, 7]] = np.nan
    batch = next(iter(RollingOrigin([whole_span(make_series(values))], context=4, horizon=4)))
    prepared = prepare(batch)
    assert prepared.past.values_BLC[0].flatten().tolist() == [0, 1, 1, 3]
    assert prepared.target_BHC[0].flatten().tolist()[:3] == [4, 5, 6]
    assert prepared.target_BHC[0].isnan().flatten().tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["2024-01-31", "2024-02-29", "2024-03-31"], ["2024-04-30", "2024-05-31"]),
        (["2023-11-15", "2023-12-15", "2024-01-15"], ["2024-02-15", "2024-03-15"]),
        (["2024-02-27", "2024-02-28", "2024-02-29"], ["2024-03-01", "2024-03-02"]),
        (["2024-02-28T23:00", "2024-02-28T23:30"], ["2024-02-29T00:00", "2024-02-29T00:30"]),
    ],
)
def test_the_calendar_goes_on(times: list[str], expected: list[str]) -> None:
    found = next_times(np.array(times, dtype="datetime64[us]"), 2, "here")
    assert found.tolist() == np.array(expected, dtype="datetime64[us]").tolist()


def test_numbers_go_on_and_a_single_date_does_not() -> None:
    assert next_times(np.array([0.5, 1.0, 1.5]), 2, "here").tolist() == [2.0, 2.5]
    assert next_times(np.array([7]), 2, "here").tolist() == [8, 9]
    with pytest.raises(UserError, match="a single row has no step"):
        next_times(np.array(["2024-01-01"], dtype="datetime64[us]"), 2, "here")


# ------------------------------------------------------------------ figures


def test_a_tally_is_the_metric_over_everything() -> None:
    """Windows in two lots and channel by channel, against one call of each metric in the data's own units."""
    generator = np.random.default_rng(0)
    target, forecast = (generator.standard_normal((9, 5, 2)) for _ in range(2))
    target[1, 2, 0] = target[4, :, 1] = np.nan
    scaling = Scaling((3.0, -1.0), (2.0, 0.5))
    own_target, own_forecast = scaling.location(target), scaling.location(forecast)
    train = generator.standard_normal((40, 2))
    naive = tuple(np.abs(train[3:] - train[:-3]).mean(0).tolist())

    joint, shared, mixed = (Tally(horizon=5) for _ in range(3))
    units = Units(*(np.array([one]) for one in (scaling.mean_C, scaling.std_C, naive)))
    of_N = generator.permutation(np.arange(18))
    some_N = [one.transpose(0, 2, 1).reshape(18, 5, 1)[of_N] for one in (target, forecast)]
    for part in (slice(0, 1), slice(1, 18)):
        rows = of_N[part]
        mixed.add(some_N[0][part], some_N[1][part], units.of(np.zeros_like(rows), rows % 2))
    for some in (slice(0, 4), slice(4, 9)):
        joint.add(target[some], forecast[some], units.of(np.zeros(len(target[some]), dtype=np.int64)))
    for channel in (0, 1):
        of_B = units.of(np.zeros(9, dtype=np.int64), np.full(9, channel))
        shared.add(target[:, :, channel, None], forecast[:, :, channel, None], of_B)
    off, own_off = target - forecast, np.abs(own_target - own_forecast)
    for found in (joint.errors(), shared.errors(), mixed.errors()):
        assert found.mse == pytest.approx(np.nanmean(off**2))
        assert found.mae == pytest.approx(np.nanmean(np.abs(off)))
        assert found.mse_original == pytest.approx(np.nanmean(own_off**2))
        assert found.smape == pytest.approx(np.nanmean(200 * own_off / (np.abs(own_target) + np.abs(own_forecast))))
        assert found.mase == pytest.approx(np.nanmean(own_off / np.abs(train[3:] - train[:-3]).mean(0)))
        assert found.mse_at == pytest.approx(np.nanmean(off**2, axis=(0, 2)))
    joint.add(target, forecast, units._replace(naive_SC=np.array([[0.0, 1.0]])).of(np.zeros(9, dtype=np.int64)))
    assert joint.errors().mase is None


# ------------------------------------------------------------------ each series by itself


def several(split: str = "0.5/0.2/0.3", *, data: dict[str, Any] | None = None) -> tuple[SeriesParts, Known]:
    """A large series, a small one and a constant."""
    random = np.random.default_rng(0)
    values = {"large": 1e6 * (3 + random.random(60)), "small": random.random(50), "still": np.full(40, 5.0)}
    series = [make_series(one, id=name) for name, one in values.items()]
    made = spec(data={"period": 2, **(data or {})}, forecast={"context": 8, "horizon": 4})
    parts = split_whole(series, split[6:]) if split.startswith("whole:") else split_rows(series, split)
    return parts, learn(made, parts)


def test_each_series_is_scaled_by_its_own_training_rows() -> None:
    parts, known = several()
    for span in parts.train[:2]:
        own = known.scaled(span.series).values_TC[span.begin : span.end]
        assert own.mean() == pytest.approx(0, abs=1e-9)
        assert own.std() == pytest.approx(1)
    still = known.scaled(parts.train[2].series).values_TC
    assert (still == 0).all()
    assert known.scaling_of["still"].std_C == known.scaling.std_C  # a constant says nothing of how far it may move


def test_one_scale_serves_all_where_that_is_wanted_or_whole_series_are_held_out() -> None:
    for parts, known in (several(data={"scaling": "pooled"}), several("whole:2/1")):
        assert not known.scaling_of
        assert known.scaled(parts.validation[0].series).values_TC.tolist() == (
            known.scaling.scaled(parts.validation[0].series.values_TC).tolist()
        )
    assert len(several("whole:2/1")[1].mase_of) == 2


def test_a_series_that_training_did_not_see_is_scaled_by_its_rows_before_the_forecast() -> None:
    _, known = several()
    values = np.concatenate([np.random.default_rng(1).random(20) - 40, np.full(10, 1e9)])
    other = make_series(values, id="other")
    told = known.with_series([(other, 20)])
    past = told.scaled(other).values_TC[:20]
    assert (past.mean(), past.std()) == (pytest.approx(0, abs=1e-9), pytest.approx(1))
    assert told.mase_of["other"] == pytest.approx((np.abs(values[2:20] - values[:18]).mean(),))
    assert known.with_series([(other, 1)]).mase_of["other"] == known.mase_C  # one row has no error


def test_what_is_known_survives_its_file_and_folders_of_before_keep_their_scale() -> None:
    parts, known = several()
    text = known.to_json()
    assert Known.from_json(text, where=Path()) == known
    old = {name: value for name, value in json.loads(text).items() if not name.endswith("_of")}
    opened = Known.from_json(json.dumps(old), where=Path())
    series = parts.train[0].series
    assert opened.scaled(series).values_TC.tolist() == known.scaling.scaled(series.values_TC).tolist()
    assert (opened.units(parts.test).naive_SC == known.mase_C).all()


def learnt(values: Any, **tables: Any) -> tuple[list[Any], Known]:
    """A series that is both learnt from and forecast, and what is known of it."""
    span = whole_span(make_series(np.asarray(values, dtype=np.float64)))
    made = spec(data={"scaling": "none", "period": 1}, forecast={"context": 16, "horizon": 6}, **tables)
    return [span], learn(made, SeriesParts((span,), (span,), ()))


def test_least_squares_knows_a_sine_and_drift_a_line() -> None:
    options: dict[str, Any] = {"context": 16, "horizon": 6, "stride": 3}
    of_sine = baseline_errors(*learnt(np.sin(np.arange(300) * 0.3)), **options)
    assert of_sine["least squares AR(8)"].mse < 1e-15
    assert of_sine["repeat last"].mse > 0.1
    assert "seasonal naive" not in of_sine
    assert baseline_errors(*learnt(0.5 * np.arange(300)), **options)["drift"].mse < 1e-15


def test_a_season_longer_than_the_context_needs_history_behind_it() -> None:
    values = np.tile(np.random.default_rng(0).standard_normal(20), 15)
    spans, known = learnt(values)
    known = known._replace(period=20)
    options: dict[str, Any] = {"context": 8, "horizon": 6, "stride": 1}
    assert "seasonal naive" not in baseline_errors(spans, known, **options)  # the first windows have no season yet
    late = [spans[0]._replace(begin=200)]
    assert baseline_errors(late, known, **options)["seasonal naive"].mse < 1e-20


def test_frames_have_baselines_of_their_own() -> None:
    """A bit that always turns, and one that is on in half of all frames."""
    span = whole_span(make_series(np.stack([np.arange(200) % 2, np.tile([0, 0, 1, 1], 50)], axis=1)))
    made = spec(
        data={"scaling": "none"},
        forecast={"context": "all", "mode": "recursive"},
        objective={"kind": "bernoulli"},
    )
    found = frame_nats([span], learn(made, SeriesParts((span,), (span,), ())))
    assert found["uniform (knows nothing)"] == pytest.approx(2 * np.log(2))
    assert found["each bit's frequency"] == pytest.approx(2 * np.log(2), rel=1e-3)
    assert found["each bit's own Markov chain"] == pytest.approx(np.log(2), rel=0.03)


# ------------------------------------------------------------------ windows


def test_a_window_weighs_what_all_ranks_observed() -> None:
    """Two ranks of two rows: their weights are equal, and the mean of their losses is the mean of all."""
    values = seasonal(200).values_TC.copy()
    values[::5] = np.nan
    parts = split_rows([make_series(values, channels=["x"])], "0.7/0.3")
    for mode in ("direct", "recursive"):
        made = spec(forecast={"context": 8, "horizon": 4, "mode": mode}, train={"batch": 4})
        known = learn(made, parts)
        alone = ForecastingJob(made, parts, known, CPU)
        both = [
            ForecastingJob(made, parts, known, Parallel(device=torch.device("cpu"), rank=rank, world=2))
            for rank in (0, 1)
        ]
        model = alone.build().double()
        total = 0.0
        for job in both:
            window = job.window(3)
            assert window.weight == alone.window(3).weight / 2
            assert window.rows == 2
            content = window.content._replace(prepared=_double(window.content.prepared))
            loss, _ = job.loss(model, window._replace(content=content), slice(0, 2), slice(0, 1), ())
            total += loss.item() / window.weight / 2
        whole_window = alone.window(3)
        content = whole_window.content._replace(prepared=_double(whole_window.content.prepared))
        loss, _ = alone.loss(model, whole_window._replace(content=content), slice(0, 4), slice(0, 1), ())
        assert total == pytest.approx(loss.item() / whole_window.weight, rel=1e-12)


def _double(prepared: Any) -> Any:
    past = prepared.past._replace(
        values_BLC=prepared.past.values_BLC.double(), covariates_BTX=prepared.past.covariates_BTX.double()
    )
    return prepared._replace(past=past, target_BHC=prepared.target_BHC.double())


def test_free_running_does_not_read_the_horizon() -> None:
    """Targets that are only compared with shift the loss by what they shift themselves; teacher forcing reads them."""
    parts = split_rows([embedded_series("noisy_sine", length=200)], "0.7/0.3")
    outputs = {}
    for forcing in ("free", "teacher"):
        made = spec(forecast={"context": 8, "horizon": 4, "mode": "recursive", "forcing": forcing}, train={"batch": 4})
        job = ForecastingJob(made, parts, learn(made, parts), CPU)
        model, window = job.build(), job.window(0)
        losses = []
        for by in (0.0, 1.0, 2.0):  # a squared error of a fixed forecast: its second difference is exact
            target = window.content.prepared.target_BHC + by
            prepared = window.content.prepared._replace(target_BHC=target)
            content = window.content._replace(prepared=prepared)
            losses.append(job.loss(model, window._replace(content=content), slice(0, 4), slice(0, 1), ())[0].item())
        outputs[forcing] = losses[2] - 2 * losses[1] + losses[0]
    assert outputs["free"] == pytest.approx(2 * 4 * 4, rel=1e-4)
    assert outputs["teacher"] != pytest.approx(2 * 4 * 4, rel=1e-3)

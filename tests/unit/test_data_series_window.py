"""Splits, scaling and windows of series: nothing leaks, nothing is counted twice, nothing depends on the order."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from statewise.data.series import Series, make_series
from statewise.data.series_preprocessing import Scaling
from statewise.data.series_window import RollingOrigin, SeriesWindows, series_rows
from statewise.data.split import Span, split_as_filed, split_rows, split_whole, whole_span
from statewise.specs import UserError


def counting(length: int, channels: int = 2, *, id: str = "s", base: int = 0) -> Series:
    """Values that tell their own place: 1000 · row + channel."""
    values_TC = base + 1000.0 * np.arange(length)[:, None] + np.arange(channels)
    return make_series(values_TC, id=id, covariates=values_TC[:, :1] + 0.5)


def test_rows_are_split_and_contexts_reach_back() -> None:
    parts = split_rows([counting(100)], "50/20/20")
    assert [(s.begin, s.end) for part in parts[:3] for s in part] == [(0, 50), (50, 70), (70, 90)]
    assert parts.unused == 10
    batch = next(iter(RollingOrigin(parts.test, context=30, horizon=5, batch=100, dtype=torch.float64)))
    assert batch.origin_B.tolist() == list(range(70, 86))
    assert batch.values_BTC[0, :, 0].tolist() == [1000.0 * t for t in range(40, 75)]
    train = next(iter(RollingOrigin(parts.train, context=30, horizon=5, batch=100)))
    assert train.origin_B.tolist() == list(range(30, 46))


def test_shares_and_counts() -> None:
    parts = split_rows([counting(10)], "0.6/0.2/0.2")
    assert [(s.begin, s.end) for part in parts[:3] for s in part] == [(0, 6), (6, 8), (8, 10)]
    assert split_rows([counting(10)], "8/2").test == ()
    for wrong in ("1", "a/b", "0.9/0.9", "-1/2", "5/5/5/5", ""):
        with pytest.raises(UserError, match="not valid"):
            split_rows([counting(10)], wrong)
    with pytest.raises(UserError, match="asks for 15, but series 's' has 10 rows"):
        split_rows([counting(10)], "10/5")
    with pytest.raises(UserError, match="nothing to learn from"):
        split_rows([counting(10)], "0/5/5")


def test_whole_series_are_split_by_the_seed() -> None:
    series = [counting(5, id=str(n)) for n in range(20)]
    parts = split_whole(series, "0.5/0.25/0.25", seed=3)
    names = [{span.series.id for span in part} for part in parts[:3]]
    assert [len(some) for some in names] == [10, 5, 5]
    assert set.union(*names) == {str(n) for n in range(20)}
    assert parts.train == split_whole(series, "0.5/0.25/0.25", seed=3).train
    assert {s.series.id for s in split_whole(series, "0.5/0.25/0.25", seed=4).train} != names[0]
    filed = [make_series(np.zeros(3), id=str(n), part=p) for n, p in enumerate(("train", "test", "train"))]
    assert [len(part) for part in split_as_filed(filed)[:3]] == [2, 0, 1]
    with pytest.raises(UserError, match="in no part of the split"):
        split_as_filed(series)


def test_scaling_is_that_of_scikit_learn_on_the_training_rows_alone() -> None:
    generator = np.random.default_rng(0)
    values_TC = generator.normal(size=(200, 3)) * [1, 1e6, 1e-6] + [5, -3, 1e-3]
    values_TC[120:] += 1e9
    parts = split_rows([make_series(values_TC)], "120/40/40")
    scaling = Scaling.fit(parts.train, kind="standard")
    oracle = StandardScaler().fit(values_TC[:120])
    np.testing.assert_allclose(scaling.mean_C, oracle.mean_, rtol=1e-12)
    np.testing.assert_allclose(scaling.std_C, oracle.scale_, rtol=1e-9)
    np.testing.assert_allclose(scaling.scaled(values_TC), oracle.transform(values_TC), rtol=1e-10)
    np.testing.assert_allclose(scaling.location(scaling.scaled(values_TC)), values_TC, rtol=1e-12)
    assert Scaling.from_json(json.loads(json.dumps(scaling.to_json()))) == scaling
    mapped = parts.mapped(scaling.apply)
    assert mapped.train[0].series is mapped.test[0].series
    np.testing.assert_array_equal(mapped.test[0].series.values_TC, scaling.scaled(values_TC))


def test_constant_and_unscaled_channels() -> None:
    values_TC = np.column_stack([np.full(10, 0.1), np.arange(10.0), [np.nan, *np.arange(9)]])
    spans = [whole_span(make_series(values_TC))]
    scaling = Scaling.fit(spans, kind="standard")
    assert scaling.std_C[0] == 1.0
    assert (scaling.mean_C[0], scaling.mean_C[2]) == (0.1, 4.0)
    assert (scaling.scaled(values_TC)[:, 0] == 0).all()
    unscaled = Scaling.fit(spans, kind="none")
    np.testing.assert_array_equal(unscaled.location(unscaled.scaled(values_TC)), values_TC)
    with pytest.raises(UserError, match="no value at all"):
        Scaling.fit([whole_span(make_series(np.full(3, np.nan)))], kind="standard")


@pytest.mark.parametrize("unit", [1e-300, 1e-15, 1.0, 1e30, 1e149])
def test_no_unit_is_too_small_or_too_large(unit: float) -> None:
    """A charge in coulombs is no constant."""
    values_T = np.random.default_rng(0).standard_normal(50)
    scaling = Scaling.fit([whole_span(make_series(values_T * unit))], kind="standard")
    np.testing.assert_allclose(scaling.std_C, values_T.std() * unit, rtol=1e-12)
    np.testing.assert_allclose(scaling.mean_C, values_T.mean() * unit, rtol=1e-12)
    one = Scaling.fit([whole_span(make_series(values_T))], kind="standard")
    assert one == Scaling((float(values_T.mean()),), (float(values_T.std()),)), "to the last digit"
    for wrong in ({}, {"mean": [1], "std": [0]}, {"mean": [1], "std": [1, 2]}, {"mean": [float("nan")], "std": [1]}, 3):
        with pytest.raises(UserError, match="not one"):
            Scaling.from_json(wrong)


@given(
    world=st.integers(1, 4),
    more=st.integers(0, 9),
    seed=st.integers(0, 2**63 - 1),
    step=st.integers(0, 10**9),
    channels=st.sampled_from(["joint", "shared"]),
)
def test_ranks_together_are_one_process(world: int, more: int, seed: int, step: int, channels: str) -> None:
    spans = [
        whole_span(counting(40, id="a")),
        whole_span(counting(3, id="short")),
        Span(counting(60, id="b", base=7), 20, 50, 5),
    ]
    options = {"context": 6, "horizon": 3, "batch": world + more, "channels": channels, "seed": seed}
    together = SeriesWindows(spans, **options)
    assert together.too_short == ("short",)
    parts = [SeriesWindows(spans, **options, rank=rank, world=world).at(step) for rank in range(world)]
    for index in (0, 1, 2, 4, 5):
        assert torch.equal(torch.cat([part[index] for part in parts]), together.at(step)[index])
    batch = together.at(step)
    for row in range(world + more):
        span = spans[batch.span_B[row]]
        origin = int(batch.origin_B[row])
        assert span.begin <= origin <= span.end - 3
        assert origin - 6 >= span.reach
        inside = slice(origin - 6, origin + 3)
        expected = span.series.values_TC[inside]
        if batch.channel_B is not None:
            expected = expected[:, [int(batch.channel_B[row])]]
        np.testing.assert_array_equal(batch.values_BTC[row].numpy(), expected.astype(np.float32))
        np.testing.assert_array_equal(batch.covariates_BTX[row].numpy(), span.series.covariates_TX[inside])


def test_steps_differ_and_every_window_is_drawn() -> None:
    windows = SeriesWindows([whole_span(counting(30, 1))], context=3, horizon=2, batch=16, seed=1)
    assert windows.windows == 26
    drawn = Counter(int(origin) for step in range(200) for origin in windows.at(step).origin_B)
    assert set(drawn) == set(range(3, 29))
    assert max(drawn.values()) < 2 * 200 * 16 / 26
    assert not torch.equal(windows.at(0).origin_B, windows.at(1).origin_B)


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4),
    context=st.integers(1, 6),
    horizon=st.integers(1, 5),
    stride=st.integers(1, 7),
    batch=st.integers(1, 9),
)
def test_rolling_counts_every_window_once(
    lengths: list[int], context: int, horizon: int, stride: int, batch: int
) -> None:
    spans = [whole_span(counting(length, id=str(n))) for n, length in enumerate(lengths)]
    expected = [
        (n, origin, channel)
        for n, length in enumerate(lengths)
        for origin in range(context, length - horizon + 1, stride)
        for channel in range(2)
    ]
    options = {"context": context, "horizon": horizon, "stride": stride, "batch": batch}
    if not expected:
        with pytest.raises(UserError, match="long enough"):
            RollingOrigin(spans, channels="shared", **options)
        return
    rolling = RollingOrigin(spans, channels="shared", **options)
    got = []
    for part in rolling:
        assert part.channel_B is not None
        got += list(zip(part.span_B.tolist(), part.origin_B.tolist(), part.channel_B.tolist(), strict=True))
    assert got == expected
    assert rolling.windows == len(expected)
    joint = RollingOrigin(spans, **options)
    assert sum(len(part.values_BTC) for part in joint) == len(expected) // 2
    assert len(joint) == len(list(joint))


def test_missing_values_are_masked_and_missing_inputs_refused() -> None:
    values_TC = np.arange(8.0)[:, None].copy()
    values_TC[3] = np.nan
    batch = next(iter(RollingOrigin([whole_span(make_series(values_TC))], context=4, horizon=2)))
    assert torch.isfinite(batch.values_BTC).all()
    assert batch.observed_BTC[0, :, 0].tolist() == [True, True, True, False, True, True]
    series = make_series(np.zeros(8), covariates=values_TC, covariate_names=["x"], where="file.csv")
    with pytest.raises(UserError, match=r"file\.csv.*'x' is missing at 3"):
        SeriesWindows([whole_span(series)], context=2, horizon=1, batch=1)


def test_whole_rows_are_padded() -> None:
    batch = series_rows([counting(3), counting(5, base=1)])
    assert batch.lengths_B.tolist() == [3, 5]
    assert batch.values_BTC[0, 3:].abs().max() == 0
    assert batch.observed_BTC[0, :, 0].tolist() == [True, True, True, False, False]
    np.testing.assert_array_equal(batch.values_BTC[1].numpy(), counting(5, base=1).values_TC)


def test_a_batch_that_cannot_be_shared() -> None:
    with pytest.raises(UserError, match="cannot be shared by 4"):
        SeriesWindows([whole_span(counting(9))], context=2, horizon=1, batch=3, world=4)

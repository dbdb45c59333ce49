"""Trivial baselines: by hand, and least squares against statsmodels."""

import math
import warnings

import numpy as np
import pytest
from numpy.typing import NDArray
from statsmodels.tsa.ar_model import AutoReg

from statewise.specs import UserError
from statewise.tasks import baseline

NAN = math.nan


def walk(time: int = 120, channels: int = 2, *, seed: int = 0) -> NDArray[np.float64]:
    noise = np.random.default_rng(seed).normal(size=(time, channels))
    values = np.zeros_like(noise)
    for t in range(2, time):
        values[t] = 0.3 + 0.5 * values[t - 1] - 0.3 * values[t - 2] + 0.2 * values[t - 1, ::-1] + noise[t]
    return values


# Tags.


def test_frequent_tag_of_each_word_and_of_all() -> None:
    words = [["run", "the", "run"], ["run", "cat"]]
    tags = [["V", "D", "N"], ["V", "N"]]
    tagger = baseline.fit_frequent_tag(words, tags)
    assert tagger.tag(["the", "run", "cat", "unheard"]) == ["D", "V", "N", "V"]
    with pytest.raises(UserError, match="row 1 has 2 words, but 1 tags"):
        baseline.fit_frequent_tag(words, [tags[0], ["V"]])
    with pytest.raises(UserError, match="no training tags"):
        baseline.fit_frequent_tag([[]], [[]])


# Series.


def test_repeat_last() -> None:
    history = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, NAN]])
    np.testing.assert_array_equal(baseline.repeat_last(history, 2), [[3, 6], [3, 6]])


def test_seasonal_naive() -> None:
    history = np.arange(7.0)[:, None]
    np.testing.assert_array_equal(baseline.seasonal_naive(history, 5, period=3)[:, 0], [4, 5, 6, 4, 5])
    history[5] = NAN
    np.testing.assert_array_equal(baseline.seasonal_naive(history, 3, period=3)[:, 0], [4, 2, 6])
    with pytest.raises(UserError, match="period = 8"):
        baseline.seasonal_naive(history, 3, period=8)
    several = np.stack([walk(), walk(seed=1)])
    np.testing.assert_array_equal(
        baseline.seasonal_naive(several, 30, period=24)[1], baseline.seasonal_naive(several[1], 30, period=24)
    )


def test_drift() -> None:
    line = 2 + 0.5 * np.arange(10.0)[:, None]
    np.testing.assert_allclose(baseline.drift(line, 4)[:, 0], 2 + 0.5 * np.arange(10, 14), rtol=1e-14)
    bent = line.copy()
    bent[3] = 99
    np.testing.assert_allclose(baseline.drift(bent, 4), baseline.drift(line, 4))
    gaps = line.copy()
    gaps[[0, 8, 9]] = NAN
    np.testing.assert_allclose(baseline.drift(gaps, 4), baseline.drift(line, 4), rtol=1e-14)
    np.testing.assert_array_equal(baseline.drift([[7.0]], 2), [[7], [7]])


@pytest.mark.parametrize("order", [1, 2, 7])
def test_least_squares_is_that_of_statsmodels(order: int) -> None:
    values = walk()
    fitted = baseline.fit_autoregression([values], order=order)
    forecast = fitted.forecast(values, 12)
    for channel in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = AutoReg(values[:, channel], lags=order, trend="c").fit()
        mine = [fitted.constant_C[channel], *fitted.weight_PC[:, channel]]
        np.testing.assert_allclose(mine, theirs.params, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(forecast[:, channel], theirs.forecast(12), rtol=1e-9, atol=1e-11)


def test_several_series_batches_and_gaps() -> None:
    """An exact autoregression is found again though series end, and values are missing."""
    exact = np.zeros((40, 1))
    exact[:2, 0] = [1, -1]
    for t in range(2, 40):
        exact[t] = 0.5 + 0.9 * exact[t - 1] - 0.5 * exact[t - 2]
    other = exact[5:20] + 0.0
    gaps = exact.copy()
    gaps[[4, 11]] = NAN
    fitted = baseline.fit_autoregression([gaps, other, exact[:2]], order=2)
    np.testing.assert_allclose(fitted.weight_PC[:, 0], [0.9, -0.5], rtol=1e-9)
    np.testing.assert_allclose(fitted.constant_C, [0.5], rtol=1e-9)
    both = np.stack([exact[:20], exact[10:30]])
    ahead = fitted.forecast(both, 10)
    np.testing.assert_allclose(ahead, [exact[20:30], exact[30:40]], rtol=1e-8, atol=1e-10)


def test_mistakes_are_named() -> None:
    fitted = baseline.fit_autoregression([walk()], order=3)
    for message, call in [
        ("too short for an autoregression of order 3", lambda: fitted.forecast(walk(2), 1)),
        ("3 channels, the autoregression 2", lambda: fitted.forecast(np.zeros((9, 3)), 1)),
        ("no series is longer", lambda: baseline.fit_autoregression([walk(4)], order=4)),
        ("without a missing value", lambda: baseline.fit_autoregression([[[1.0], [NAN], [2.0]]], order=1)),
        ("order = 0", lambda: baseline.fit_autoregression([walk()], order=0)),
        ("no known value", lambda: baseline.repeat_last([[NAN]], 1)),
        ("horizon = 0", lambda: baseline.repeat_last([[1.0]], 0)),
        (r"expected \[\.\.\., time, channels\]", lambda: baseline.drift([1.0], 1)),
    ]:
        with pytest.raises(UserError, match=message):
            call()

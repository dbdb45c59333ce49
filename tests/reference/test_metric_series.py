"""Metrics of forecasts against scikit-learn, against their definition, and against numerical integration."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats
from sklearn import metrics as sklearn

from statewise.specs import UserError
from statewise.tasks.metric import series

RANDOM = np.random.default_rng(0)
TARGET = RANDOM.normal(size=(5, 4, 2))
FORECAST = RANDOM.normal(size=(5, 4, 2))


def with_gaps() -> NDArray[np.float64]:
    gaps = TARGET.copy()
    gaps[0, 1, 0] = gaps[3] = np.nan
    return gaps


def crps_by_integration(cdf: stats.rv_continuous, y: float) -> float:
    below, _ = integrate.quad(lambda x: cdf.cdf(x) ** 2, -np.inf, y, epsabs=1e-12, limit=200)
    above, _ = integrate.quad(lambda x: cdf.sf(x) ** 2, y, np.inf, epsabs=1e-12, limit=200)
    return float(below + above)


@pytest.mark.parametrize(("y", "location", "scale"), [(0.3, 0.0, 1.0), (-2.0, 1.0, 0.5), (4.0, -1.0, 3.0)])
@pytest.mark.parametrize("freedom", [2.1, 3.0, 7.5, 40.0, 200.0])
def test_crps_in_closed_form_is_the_integral(y: float, location: float, scale: float, freedom: float) -> None:
    student = series.crps_student([y], [location], [scale], [freedom])
    assert student == pytest.approx(crps_by_integration(stats.t(freedom, location, scale), y), rel=1e-7)
    gaussian = series.crps_gaussian([y], [location], [scale])
    assert gaussian == pytest.approx(crps_by_integration(stats.norm(location, scale), y), rel=1e-7)


@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_a_scale_is_positive(scale: float) -> None:
    with pytest.raises(UserError, match=f"scale {scale:g} has no distribution"):
        series.crps_gaussian([0.3], [0.0], [scale])
    with pytest.raises(UserError, match=f"scale {scale:g} has no distribution"):
        series.crps_student([0.3], [0.0], [scale], [3.0])


def test_crps_of_student_with_much_freedom_is_that_of_the_gaussian() -> None:
    ones = np.ones_like(TARGET)
    student = series.crps_student(TARGET, FORECAST, ones, 1e9 * ones)
    gaussian = series.crps_gaussian(TARGET, FORECAST, ones)
    assert student == pytest.approx(gaussian, rel=1e-8)


def test_crps_of_samples_by_its_definition_over_pairs() -> None:
    samples = RANDOM.normal(size=(7, *TARGET.shape))
    gaps = with_gaps()
    apart = np.abs(samples[:, None] - samples[None]).sum((0, 1)) / (7 * 6)
    expected = np.abs(samples - gaps).mean(0) - apart / 2
    score = series.crps_samples(gaps, samples)
    assert score == pytest.approx(np.nanmean(expected), rel=1e-12)


def test_crps_of_many_samples_and_of_many_quantiles_nears_the_closed_form() -> None:
    exact = series.crps_gaussian([0.7], [0.0], [1.0])
    draws = RANDOM.normal(size=(200_000, 1))
    assert series.crps_samples([0.7], draws) == pytest.approx(exact, rel=0.01)
    levels = [(i + 0.5) / 2000 for i in range(2000)]
    quantiles = stats.norm.ppf(levels)[None]
    by_levels = series.crps_quantiles([0.7], quantiles, levels=levels)
    assert by_levels == pytest.approx(exact, rel=1e-3)


def test_crps_of_quantiles_is_twice_the_pinball_loss_of_scikit_learn() -> None:
    levels = [0.1, 0.5, 0.9]
    quantiles = np.sort(RANDOM.normal(size=(*TARGET.shape, 3)), axis=-1)
    expected = np.mean(
        [sklearn.mean_pinball_loss(TARGET.ravel(), quantiles[..., i].ravel(), alpha=q) for i, q in enumerate(levels)]
    )
    assert series.crps_quantiles(TARGET, quantiles, levels=levels) == pytest.approx(2 * expected, rel=1e-13)


def test_coverage_and_width() -> None:
    scores = series.interval([1, 2, 3, np.nan], [0, 2, 4, 0], [2, 2.5, 5, 9])
    assert scores.coverage == pytest.approx(2 / 3)
    assert scores.width == pytest.approx((2 + 0.5 + 1) / 3)


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="every target is missing"):
        series.crps_gaussian([np.nan], [1.0], [1.0])
    with pytest.raises(UserError, match=r"shape \[2\], its target \[1\]"):
        series.crps_gaussian([1.0], [1.0, 2.0], [1.0])
    with pytest.raises(UserError, match=r"forecast at \[1\] is not a number"):
        series.crps_gaussian([1.0, 2.0], [1.0, np.nan], [1.0, 1.0])
    with pytest.raises(UserError, match="low end is above"):
        series.interval([1.0], [2.0], [1.0])
    with pytest.raises(UserError, match="expected more than 1"):
        series.crps_student([1.0], [0.0], [1.0], [1.0])
    with pytest.raises(UserError, match="two or more"):
        series.crps_samples([1.0], [[1.0]])
    with pytest.raises(UserError, match="3 levels on the last axis"):
        series.crps_quantiles([1.0], [[1.0]], levels=[0.1, 0.2, 0.3])

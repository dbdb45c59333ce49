"""The generators against their equations, integrated by SciPy where there is something to integrate."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from statewise.data.embedded.series import (
    GENERATORS,
    embedded_series,
    lorenz,
    mackey_glass,
    noisy_sine,
    seasonal,
    switching,
)
from statewise.specs import UserError


def test_lorenz_against_scipy() -> None:
    start, step = (1.0, 2.0, 20.0), 0.001

    def slope(_: float, at: np.ndarray) -> list[float]:
        x, y, z = at
        return [10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z]

    got = lorenz(201, start=start, step=step, every=10, washout=0)
    expected = solve_ivp(slope, (0, 2), start, t_eval=got.time_T, rtol=1e-12, atol=1e-12, method="DOP853").y.T
    np.testing.assert_allclose(got.values_TC, expected, atol=1e-6)
    # Of order 4: a step half as long errs a sixteenth.
    errors = [
        np.abs(lorenz(51, start=start, step=s, every=round(0.02 / s), washout=0).values_TC - expected[:101:2]).max()
        for s in (0.01, 0.005)
    ]
    assert 11 < errors[0] / errors[1] < 22


def by_steps(tau: float, until: float, start: float) -> tuple[np.ndarray, np.ndarray]:
    """Mackey-Glass as ordinary equations, one delay after the other (the method of steps)."""
    past = [lambda t: start]
    times, values = [np.array([0.0])], [np.array([start])]
    for number in range(int(np.ceil(until / tau))):
        before = past[-1]

        def slope(t: float, x: np.ndarray, before=before) -> np.ndarray:
            late = float(np.squeeze(before(t - tau)))
            return 0.2 * late / (1 + late**10) - 0.1 * x

        begin, end = number * tau, (number + 1) * tau
        grid = np.arange(begin, end + 1e-9, 1.0)[1:]
        done = solve_ivp(
            slope,
            (begin, end),
            [values[-1][-1]],
            rtol=1e-11,
            atol=1e-12,
            method="DOP853",
            dense_output=True,
            max_step=1,
        )
        past.append(done.sol)
        times.append(grid)
        values.append(done.sol(grid)[0])
    return np.concatenate(times), np.concatenate(values)


def test_mackey_glass_against_scipy() -> None:
    time_T, expected = by_steps(17.0, 120.0, 1.2)
    got = mackey_glass(len(time_T), start=1.2, washout=0)
    np.testing.assert_allclose(got.time_T, time_T, atol=1e-9)
    np.testing.assert_allclose(got.values_TC[:, 0], expected, atol=1e-6)
    coarse = mackey_glass(len(time_T), start=1.2, washout=0, step=0.5, every=2)
    fine = mackey_glass(len(time_T), start=1.2, washout=0, step=0.25, every=4)
    ratio = np.abs(coarse.values_TC[:, 0] - expected).max() / np.abs(fine.values_TC[:, 0] - expected).max()
    assert ratio > 8, "the order of the method is lost"


def test_mackey_glass_lives_where_it_should() -> None:
    x_T = mackey_glass(2000).values_TC[:, 0]
    assert 0.2 < x_T.min() < 0.5
    assert 1.2 < x_T.max() < 1.5


def test_seasonal_gives_its_parameters_back() -> None:
    """Least squares on the terms of its own equation; what is left is the noise."""
    series = seasonal(5000, seed=3)
    t_T = np.arange(5000)
    terms = [np.ones(5000), t_T, np.sin(2 * np.pi * t_T / 24), np.sin(2 * np.pi * t_T / 168)]
    found, rest, _, _ = np.linalg.lstsq(np.column_stack(terms), series.values_TC[:, 0], rcond=None)
    np.testing.assert_allclose(found, [10, 0.002, 2, 1], rtol=0.01)
    assert np.sqrt(rest[0] / 5000) == pytest.approx(0.3, rel=0.05)
    assert series.time_T[25] == np.datetime64("2020-01-02T01:00")


def test_noisy_sine_is_the_books() -> None:
    series = noisy_sine(1000, noise=0.0)
    np.testing.assert_allclose(series.values_TC[:, 0], np.sin(0.01 * np.arange(1, 1001)), atol=1e-12)
    assert (noisy_sine().values_TC - series.values_TC).std() == pytest.approx(0.2, rel=0.1)


def test_switching_follows_the_coefficient_of_its_time() -> None:
    x_T = switching(8000, seed=1).values_TC[:, 0]
    first_T = np.arange(7999) // 500 % 2 == 0
    before_T, after_T = x_T[:-1], x_T[1:]
    switch_T = np.concatenate([first_T[1:], [False]])  # x[t+1] belongs to the regime of t + 1
    for some, coefficient in ((switch_T, 0.9), (~switch_T, -0.9)):
        slope = (before_T[some] * after_T[some]).sum() / (before_T[some] ** 2).sum()
        assert slope == pytest.approx(coefficient, abs=0.03)
    pooled = (before_T * after_T).sum() / (before_T**2).sum()
    assert abs(pooled) < 0.2


@pytest.mark.parametrize("name", GENERATORS)
def test_a_function_of_the_seed(name: str) -> None:
    one, again, other = (embedded_series(name, length=50, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.values_TC, again.values_TC)
    assert not np.array_equal(one.values_TC, other.values_TC)
    assert len(one) == 50
    assert np.isfinite(one.values_TC).all()
    longer = embedded_series(name, length=60, seed=1)
    np.testing.assert_array_equal(longer.values_TC[:50], one.values_TC)


def test_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'lorenz'"):
        embedded_series("lorentz")
    with pytest.raises(UserError, match="whole number of steps"):
        mackey_glass(10, tau=17.03)
    with pytest.raises(UserError, match="inside"):
        switching(10, coefficients=(1.5,))
    with pytest.raises(UserError, match="at least 1"):
        embedded_series("lorenz", length=0)

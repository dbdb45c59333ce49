"""Checks of the exercises of chapter 3."""

from math import isclose
from types import ModuleType

import numpy as np


def check_3_1(answers: ModuleType) -> None:
    x = np.random.default_rng(0).standard_normal(30)
    for order in (1, 3, 7):
        inputs, targets = (np.asarray(part) for part in answers.make_pairs(x.copy(), order))
        assert inputs.shape == (30 - order, order), f"30 values, order {order}: inputs of shape {inputs.shape}"
        assert targets.shape == (30 - order,), f"30 values, order {order}: targets of shape {targets.shape}"
        for at in range(30 - order):
            assert np.array_equal(inputs[at], x[at : at + order]), f"order {order}: input {at} is {inputs[at]}"
            assert targets[at] == x[at + order], f"order {order}: target {at} is not the value after its window"


def _pendulum() -> np.ndarray:
    values = [0.0, 0.1]
    for shock in 0.1 * np.random.default_rng(1).standard_normal(600):
        values.append(1.8 * values[-1] - 0.95 * values[-2] + shock)
    return np.array(values)


def check_3_2(answers: ModuleType) -> None:
    x = _pendulum()
    for order in (1, 2, 3):
        past = np.column_stack([x[order - lag : len(x) - lag] for lag in range(1, order + 1)])
        expected = np.linalg.lstsq(past, x[order:], rcond=None)[0]
        found = np.asarray(answers.fit_ar(x.copy(), order))
        assert found.shape == (order,), f"order {order}: {found.shape} coefficients"
        assert np.allclose(found, expected, atol=1e-8), f"order {order}: {found}, expected {expected}"


def check_3_3(answers: ModuleType) -> None:
    past = [0.3, -0.2, 0.5]
    expected, values = [], list(past)
    for _ in range(6):
        values.append(1.8 * values[-1] - 0.95 * values[-2])
        expected.append(values[-1])
    found = np.asarray(answers.forecast(np.array([1.8, -0.95]), np.array(past), 6))
    assert found.shape == (6,), f"6 steps were asked for; the result has the shape {found.shape}"
    assert np.isclose(found[0], expected[0]), f"the first value is {found[0]:.4f}, expected {expected[0]:.4f}"
    assert np.allclose(found, expected), "the first value is right; later ones must read those before them"


def check_3_4(answers: ModuleType) -> None:
    for a in (0.9, -0.5, 0.0, 1.0, -1.0, 1.1):
        for k in (1, 2, 7):
            expected = 0.25 * sum(a ** (2 * step) for step in range(k))
            found = float(answers.error_variance(a, 0.5, k))
            assert isclose(found, expected, rel_tol=1e-9), f"a = {a}, k = {k}: {found}, expected {expected}"


def check_3_5(answers: ModuleType) -> None:
    for order in (1, 2, 4):
        past: list[float] = []
        read: list[float] = []
        for value in (3.0, 1.0, 4.0, 1.5, 5.0, 9.0):
            given = list(past)
            window, after = answers.window_step(given, value, order)
            assert given == past, "the given past was changed"
            read.append(value)
            assert list(window) == read[-order:], f"order {order}, after {read}: the window is {list(window)}"
            kept = read[-(order - 1) :] if order > 1 else []
            assert list(after) == kept, f"order {order}, after {read}: the past is {list(after)}, expected {kept}"
            past = list(after)

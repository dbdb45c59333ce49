"""Checks of the exercises of chapter 5."""

from math import isclose, tanh
from types import ModuleType

import numpy as np


def check_5_1(answers: ModuleType) -> None:
    for gradient, theta, expected in (
        ([3.0, 4.0], 1.0, [0.6, 0.8]),
        ([3.0, 4.0], 9.0, [3.0, 4.0]),
        ([0.0], 1.0, [0.0]),
    ):
        found = np.asarray(answers.clip(np.array(gradient), theta))
        assert np.allclose(found, expected), f"{gradient} clipped at {theta}: {found}, expected {expected}"


def check_5_2(answers: ModuleType) -> None:
    rng = np.random.default_rng(0)
    for scale in (1.0, 1000.0):
        logits, targets = scale * rng.normal(size=(5, 3)), rng.integers(3, size=5)
        found = np.asarray(answers.output_gradient(logits.copy(), targets.copy()))
        p = np.exp(logits - logits.max(1, keepdims=True))
        expected = p / p.sum(1, keepdims=True) - np.eye(3)[targets]
        assert found.shape == (5, 3), f"the gradient has the shape {found.shape}, expected (5, 3)"
        assert np.allclose(found, expected), f"logits of size {scale}: not softmax minus one-hot"


def check_5_3(answers: ModuleType) -> None:
    x = np.random.default_rng(1).normal(size=12).tolist()

    def last(w: float) -> float:
        h = 0.0
        for value in x:
            h = tanh(w * h + value)
        return h

    for w in (0.3, 1.2, -0.8):
        expected = (last(w + 1e-6) - last(w - 1e-6)) / 2e-6
        found = float(answers.slope_of_last(w, list(x)))
        assert isclose(found, expected, rel_tol=1e-5, abs_tol=1e-8), f"w = {w}: {found}, expected {expected}"


def check_5_4(answers: ModuleType) -> None:
    for length, size, expected in (
        (10, 4, [(0, 4), (4, 8), (8, 10)]),
        (8, 4, [(0, 4), (4, 8)]),
        (3, 5, [(0, 3)]),
    ):
        found = [tuple(pair) for pair in answers.segments(length, size)]
        assert found == expected, f"{length} steps in pieces of {size}: {found}, expected {expected}"


def check_5_5(answers: ModuleType) -> None:
    rng = np.random.default_rng(2)
    W, x, start = rng.normal(size=(3, 3)), rng.normal(size=(4, 3)), rng.normal(size=3)

    def run(h: np.ndarray) -> np.ndarray:
        states = []
        for value in x:
            h = np.tanh(h @ W + value)
            states.append(h)
        return np.stack(states)

    expected = np.stack([(run(start + e)[-1] - run(start - e)[-1]) / 2e-6 for e in 1e-6 * np.eye(3)])
    found = np.asarray(answers.through_time(run(start), W.copy()))
    assert found.shape == (3, 3), f"the shape is {found.shape}, expected (3, 3)"
    assert not np.allclose(found, expected.T, atol=1e-6), "rows and columns are exchanged"
    assert np.allclose(found, expected, atol=1e-6), "not the derivative of the last state by the initial one"

"""Checks of the exercises of chapter 8."""

import math
from types import ModuleType

import numpy as np


def _network(seed: int) -> tuple[np.ndarray, ...]:
    """Inputs of width 3, true outputs of width 2, then W, R, b, V and c for a hidden layer of width 4."""
    rng = np.random.default_rng(seed)
    shapes = ((9, 3), (9, 2), (4, 3), (4, 2), (4,), (2, 4), (2,))
    return tuple(rng.normal(size=shape) for shape in shapes)


def check_8_1(answers: ModuleType) -> None:
    found = list(answers.told(["b", "a", "c"], "."))
    assert len(found) == 3, f"{len(found)} inputs for 3 steps: the last output is read by no step"
    assert found == [".", "b", "a"], f"{found}, expected ['.', 'b', 'a']: each step reads the output before its own"
    assert list(answers.told([4], 0)) == [0], "with one step only `first` is read"


def check_8_2(answers: ModuleType) -> None:
    x, y, W, R, b, V, c = _network(1)
    expected, last = [], np.zeros(2)
    for x_t, y_t in zip(x, y):
        expected.append(V @ np.tanh(W @ x_t + R @ last + b) + c)
        last = y_t
    kept = y.copy()
    found = np.asarray(answers.jordan_forced(x, y, W, R, b, V, c))
    assert found.shape == y.shape, f"the shape is {found.shape}, expected {y.shape}"
    assert (y == kept).all(), "y has been changed"
    assert np.allclose(found[0], expected[0]), "at the first step nothing comes back: R times zeros"
    assert np.allclose(found, expected), "step t reads the true output of step t - 1"


def check_8_3(answers: ModuleType) -> None:
    x, _, W, R, b, V, c = _network(2)
    expected, last = [], np.zeros(2)
    for x_t in x:
        last = V @ np.tanh(W @ x_t + R @ last + b) + c
        expected.append(last)
    found = np.asarray(answers.jordan_free(x, W, R, b, V, c))
    assert found.shape == (9, 2), f"the shape is {found.shape}, expected (9, 2)"
    assert np.allclose(found, expected), "step t reads the network's own output of step t - 1"


def check_8_4(answers: ModuleType) -> None:
    for k in (2.0, 25.0, 200.0):
        step = float(answers.half_way(k))
        share = k / (k + math.exp(step / k))
        assert abs(share - 0.5) < 1e-9, f"k = {k}: at step {step:.2f} the probability is {share:.4f}, expected 0.5"


def check_8_5(answers: ModuleType) -> None:
    rng = np.random.default_rng(3)
    first, given = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), size=3)
    total = 0.0
    for a in range(3):
        for b in range(3):
            found = float(answers.sequence_probability(first.tolist(), given, [a, b]))
            assert abs(found - first[a] * given[a, b]) < 1e-12, f"p({a}, {b}) is {found:.4f}, not p({a}) p({b} | {a})"
            total += found
    assert abs(total - 1) < 1e-9, f"all sequences of two symbols have {total:.4f} together, expected 1"
    long = float(answers.sequence_probability(first.tolist(), given, [0, 1, 1, 2]))
    assert abs(long - first[0] * given[0, 1] * given[1, 1] * given[1, 2]) < 1e-12, "not a product of four factors"

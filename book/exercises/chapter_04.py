"""Checks of the exercises of chapter 4."""

from types import ModuleType

import numpy as np


def _weights(inputs: int = 3, width: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    return rng.normal(size=(inputs, width)), 0.5 * rng.normal(size=(width, width)), rng.normal(size=width)


def check_4_1(answers: ModuleType) -> None:
    for bits in ([], [0], [1, 1, 0, 1], np.random.default_rng(0).integers(2, size=50).tolist()):
        expected = [sum(bits[: at + 1]) % 2 for at in range(len(bits))]
        found = [int(value) for value in answers.parity(list(bits))]
        assert found == expected, f"of {bits[:8]}: {found[:8]}, expected {expected[:8]}"


def check_4_2(answers: ModuleType) -> None:
    rng = np.random.default_rng(1)
    x, h = rng.normal(size=(2, 3)), rng.normal(size=(2, 4))
    W_xh, W_hh, b_h = _weights()
    found = np.asarray(answers.rnn_step(x, h, W_xh, W_hh, b_h))
    assert found.shape == (2, 4), f"the new state has the shape {found.shape}, expected (2, 4)"
    assert np.allclose(found, np.tanh(x @ W_xh + h @ W_hh + b_h)), "not tanh(x W_xh + h W_hh + b_h)"


def check_4_3(answers: ModuleType) -> None:
    rng = np.random.default_rng(3)
    X, start, weights = rng.normal(size=(2, 6, 3)), rng.normal(size=(2, 4)), _weights()
    states, last = (np.asarray(part) for part in answers.run_rnn(X, start.copy(), *weights))
    assert states.shape == (2, 6, 4), f"the states have the shape {states.shape}, expected (2, 6, 4)"
    h = start
    for t in range(6):
        h = np.tanh(X[:, t] @ weights[0] + h @ weights[1] + weights[2])
        assert np.allclose(states[:, t], h), f"the state at time step {t} is wrong"
    assert np.allclose(last, h), "the last state is not that of the last time step"
    _, middle = answers.run_rnn(X[:, :2], start.copy(), *weights)
    rest, _ = answers.run_rnn(X[:, 2:], middle, *weights)
    assert np.allclose(rest, states[:, 2:]), "reading in two parts gives other states"


def check_4_4(answers: ModuleType) -> None:
    output = np.random.default_rng(4).normal(size=(3, 5, 2))
    found = np.asarray(answers.last_states(output.copy(), np.array([5, 1, 3])))
    assert found.shape == (3, 2), f"the shape is {found.shape}, expected (3, 2)"
    expected = np.stack([output[0, 4], output[1, 0], output[2, 2]])
    assert np.array_equal(found, expected), "a row of length n ends at time step n - 1"


def check_4_5(answers: ModuleType) -> None:
    W_xh, W_hh, b_h, w, c = (np.asarray(part, dtype=float) for part in answers.parity_network())
    width = len(b_h)
    shapes = (W_xh.shape, W_hh.shape, w.shape)
    assert shapes == ((1, width), (width, width), (width,)), f"W_xh, W_hh and w have the shapes {shapes}"
    rng = np.random.default_rng(5)
    for density in (0.1, 0.5, 0.9):
        bits = (rng.random(300) < density).astype(int)
        h = np.zeros(width)
        for at, bit in enumerate(bits):
            h = np.tanh(bit * W_xh[0] + h @ W_hh + b_h)
            odd = bits[: at + 1].sum() % 2 == 1
            assert (float(w @ h + c) > 0) == odd, f"wrong after {at + 1} bits, {bits[: at + 1].sum()} of them ones"

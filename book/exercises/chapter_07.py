"""Checks of the exercises of chapter 7."""

from types import ModuleType

import numpy as np
import torch
from torch import nn


def _rows(seed: int, *, gates: int) -> tuple[np.ndarray, ...]:
    """An input and a state of two rows, then W, U and b, for inputs of width 3 and a state of width 4."""
    rng = np.random.default_rng(seed)
    shapes = ((2, 3), (2, 4), (4 * gates, 3), (4 * gates, 4), (4 * gates,))
    return tuple(rng.normal(size=shape) for shape in shapes)


def _module(cell: nn.LSTMCell | nn.GRUCell, W: np.ndarray, U: np.ndarray, b: np.ndarray) -> None:
    with torch.no_grad():
        cell.weight_ih.copy_(torch.tensor(W))
        cell.weight_hh.copy_(torch.tensor(U))
        cell.bias_ih.copy_(torch.tensor(b))
        cell.bias_hh.zero_()


def check_7_1(answers: ModuleType) -> None:
    x, h, W, U, b = _rows(1, gates=4)
    c = np.random.default_rng(2).normal(size=h.shape)
    cell = nn.LSTMCell(3, 4).double()
    _module(cell, W, U, b)
    with torch.no_grad():
        expected = [part.numpy() for part in cell(torch.tensor(x), (torch.tensor(h), torch.tensor(c)))]
    new_h, new_c = (np.asarray(part) for part in answers.lstm_cell(x, h, c, W, U, b))
    assert np.allclose(new_c, expected[1]), "c is not f c + i g; the rows are those of i, f, g, o"
    assert np.allclose(new_h, expected[0]), "h is not o tanh(c), with the new c"


def check_7_2(answers: ModuleType) -> None:
    x, h, W, U, b = _rows(3, gates=3)
    b_u = np.random.default_rng(4).normal(size=4)
    cell = nn.GRUCell(3, 4).double()
    _module(cell, W, U, b)
    with torch.no_grad():
        cell.bias_hh[8:] = torch.tensor(b_u)
        expected = cell(torch.tensor(x), torch.tensor(h)).numpy()
    found = np.asarray(answers.gru_cell(x, h, W, U, b, b_u))
    assert found.shape == h.shape, f"the new state has the shape {found.shape}, expected {h.shape}"
    assert np.allclose(found, expected), "not (1 - z) n + z h with n = tanh(W_n x + b_n + r (U_n h + b_u))"


def check_7_3(answers: ModuleType) -> None:
    for steps in (1, 2, 10, 500):
        bias = float(answers.forget_bias(steps))
        left = (1 / (1 + np.exp(-bias))) ** steps
        assert abs(left - 0.5) < 1e-9, f"with the bias {bias:.4f}, {left:.4f} is left after {steps} steps, expected 0.5"


def check_7_4(answers: ModuleType) -> None:
    for kind, gates in {"elman": 1, "gru": 3, "lstm": 4}.items():
        for width, inputs in ((1, 1), (5, 3), (64, 10)):
            expected = gates * (width * inputs + width * width + width) + (width if kind == "gru" else 0)
            found = answers.num_weights(kind, width, inputs)
            assert found == expected, f"{kind} of width {width} with {inputs} inputs: {found}, expected {expected}"


def check_7_5(answers: ModuleType) -> None:
    rng = np.random.default_rng(5)
    values, store = rng.normal(size=30), (rng.random(30) < 0.2).astype(float)
    store[0] = 0.0
    held, expected = 0.0, []
    for value, now in zip(values, store):
        held = value if now else held
        expected.append(held)
    found = np.asarray(answers.latch(values, store), dtype=float)
    assert found.shape == (30,), f"the shape is {found.shape}, expected (30,)"
    assert np.allclose(found, expected), "it holds another value than the last one stored; z is 1 - store"

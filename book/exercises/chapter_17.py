"""Checks of the exercises of chapter 17."""

from functools import partial
from types import ModuleType

import numpy as np
import torch

from statewise.models import build, cost_of


def _pairs(seed: int, *, count: int, width: int, unit: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    keys, values = rng.normal(size=(2, count, width))
    return (keys / np.linalg.norm(keys, axis=1, keepdims=True) if unit else keys), values


def check_17_1(answers: ModuleType) -> None:
    keys, values = _pairs(1, count=5, width=4)
    wide = np.random.default_rng(2).normal(size=(5, 3))
    for stored in (values, wide):
        expected = sum(np.outer(k, v) for k, v in zip(keys, stored))
        found = np.asarray(answers.write(keys, stored))
        assert found.shape == expected.shape, f"the shape is {found.shape}, expected {expected.shape}: keys by values"
        assert np.allclose(found, expected), "not the sum of the outer products k vᵀ"


def check_17_2(answers: ModuleType) -> None:
    q, _ = _pairs(3, count=7, width=4)
    k, v = _pairs(4, count=7, width=4)
    state, expected = np.zeros((4, 4)), []
    for at in range(7):
        state = state + np.outer(k[at], v[at])
        expected.append(state.T @ q[at])
    found = np.asarray(answers.linear_attention(q, k, v))
    assert found.shape == (7, 4), f"the shape is {found.shape}, expected (7, 4)"
    assert np.allclose(found[0], expected[0]), "the first output has seen later symbols: mask what lies ahead"
    assert np.allclose(found, expected), "not Σ (q_t · k_s) v_s over s ≤ t; there is no softmax and no division"


def check_17_3(answers: ModuleType) -> None:
    keys, values = _pairs(5, count=6, width=4, unit=True)
    for beta in (1.0, 0.3):
        expected = np.zeros((4, 4))
        for k, v in zip(keys, values):
            expected = expected + beta * np.outer(k, v - expected.T @ k)
        found = np.asarray(answers.overwrite(keys, values, beta))
        assert np.allclose(found, expected), f"not the delta rule with β = {beta}: S + β k (v - Sᵀ k)ᵀ, pair by pair"


def check_17_4(answers: ModuleType) -> None:
    rng = np.random.default_rng(6)
    W, k, v = rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=3)
    weights = torch.tensor(W, requires_grad=True)
    loss = 0.5 * (torch.tanh(weights.T @ torch.tensor(k)) - torch.tensor(v)).square().sum()
    (gradient,) = torch.autograd.grad(loss, weights)
    before = W.copy()
    for rate in (0.0, 0.1, 2.0):
        found = np.asarray(answers.inner_step(W, k, v, rate))
        assert np.array_equal(W, before), "the old weights were changed; return new ones"
        assert np.allclose(found, before - rate * gradient.numpy()), (
            f"rate {rate}: not W - η k (error · (1 - tanh²))ᵀ; autograd gives another gradient"
        )


def check_17_5(answers: ModuleType) -> None:
    for width, heads in ((8, 2), (64, 4), (128, 1)):
        matrix = cost_of(partial(build, "ttt_linear", vocab=5, width=width, heads=heads, depth=1, conv=0), context=1)
        numbers = (matrix.state_bytes - 8) // 4
        expected = numbers // (2 * width) + 1
        found = answers.break_even(width, heads)
        assert found == expected, f"width {width}, {heads} heads: {found} symbols, expected {expected}"

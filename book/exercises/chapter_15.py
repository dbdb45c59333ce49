"""Checks of the exercises of chapter 15."""

from types import ModuleType

import numpy as np
import torch

from statewise.layers import sinusoid


def check_15_1(answers: ModuleType) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(5, 4))
    for k in (4, 3):
        W_q, W_k, W_v = (rng.normal(size=(k, 4)) for _ in range(3))
        q, keys, v = (torch.tensor(x @ W.T) for W in (W_q, W_k, W_v))
        expected = torch.nn.functional.scaled_dot_product_attention(q[None], keys[None], v[None])[0].numpy()
        found = np.asarray(answers.scaled_attention(x, W_q, W_k, W_v))
        assert found.shape == (5, k), f"the shape is {found.shape}, expected (5, {k})"
        assert np.allclose(found, expected), f"not softmax(q . k / root of {k}) times the values"


def check_15_2(answers: ModuleType) -> None:
    for e in (np.array([0.3, -1.2, 2.0, 0.5]), np.array([800.0, 0.0, 799.0])):
        w = torch.softmax(torch.tensor(e), -1).numpy()
        expected = np.diag(w) - w[:, None] * w
        found = np.asarray(answers.weights_jacobian(e))
        assert found.shape == expected.shape, f"the shape is {found.shape}, expected {expected.shape}"
        assert np.allclose(found, expected), f"not w_i (delta_ij - w_j) for the scores {e}"


def check_15_3(answers: ModuleType) -> None:
    x = np.arange(24.0).reshape(4, 6)
    for heads in (1, 2, 3):
        found = np.asarray(answers.split_heads(x, heads))
        expected = np.stack(np.split(x, heads, axis=1))
        assert found.shape == expected.shape, f"the shape is {found.shape}, expected {expected.shape}"
        assert np.array_equal(found, expected), f"head 1 of {heads} has {found[0].tolist()}, not the first columns of x"


def check_15_4(answers: ModuleType) -> None:
    for t, width in ((0, 4), (1, 8), (37, 6), (500, 2)):
        expected = sinusoid(torch.tensor([t]), width, like=torch.zeros(1).double())[0].numpy()
        found = np.asarray(answers.sinusoidal(t, width), dtype=float)
        assert found.shape == (width,), f"the shape is {found.shape}, expected ({width},)"
        assert np.allclose(found, expected), (
            f"position {t}, width {width}: {found.round(3)}, expected {expected.round(3)}"
        )


def check_15_5(answers: ModuleType) -> None:
    score = np.random.default_rng(5).normal(size=(5, 5))
    for slope in (0.0, 0.5, 3.0):
        found = np.asarray(answers.alibi_weights(score, slope))
        assert found.shape == (5, 5), f"the shape is {found.shape}, expected (5, 5)"
        assert not np.triu(found, 1).any(), "a word has weight on a later one"
        for t in range(5):
            e = np.exp(score[t, : t + 1] - slope * (t - np.arange(t + 1)))
            assert np.allclose(found[t, : t + 1], e / e.sum()), (
                f"row {t}, slope {slope}: not softmax(score - slope (t - s))"
            )

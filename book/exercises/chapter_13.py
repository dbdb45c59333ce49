"""Checks of the exercises of chapter 13."""

from types import ModuleType

import numpy as np
import torch

from statewise.layers import make_alignment, make_score


def check_13_1(answers: ModuleType) -> None:
    e = np.random.default_rng(1).normal(size=(2, 3, 5))
    for scores in (e, e[0, 0], 1000 * e):
        expected = torch.softmax(torch.tensor(scores), -1).numpy()
        found = np.asarray(answers.attention_weights(scores))
        assert found.shape == scores.shape, f"the shape is {found.shape}, expected {scores.shape}"
        assert np.isfinite(found).all(), "not finite: subtract the largest score before the exponential"
        assert np.allclose(found, expected), "not exp(e) over its sum along the last axis"
    found = np.asarray(answers.attention_weights(np.array([1.0, -np.inf, 1.0])))
    assert np.allclose(found, [0.5, 0.0, 0.5]), f"a score of -inf is not allowed to get weight: {found}"


def check_13_2(answers: ModuleType) -> None:
    torch.manual_seed(2)
    score = make_score("additive", query_width=3, key_width=4, hidden=5).double()
    q, K = torch.randn(3).double(), torch.randn(6, 4).double()
    with torch.no_grad():
        torch.nn.init.normal_(score.get_parameter("b_A"))
        expected = score(q[None, None], score.prepare(K[None]))[0, 0].numpy()
    W, U, b, v = (score.get_parameter(name).detach().numpy() for name in ("w_AQ", "u_AK", "b_A", "v_A"))
    found = np.asarray(answers.additive_scores(q.numpy(), K.numpy(), W, U, b, v))
    assert found.shape == (6,), f"the shape is {found.shape}, expected one score for each row of K: (6,)"
    assert np.allclose(found, expected), "not v . tanh(W q + U k + b) for each row k of K"


def check_13_3(answers: ModuleType) -> None:
    rng = np.random.default_rng(3)
    q, K, V = rng.normal(size=3), rng.normal(size=(5, 3)), rng.normal(size=(5, 2))
    K[3:], V[3:] = 50.0, np.nan
    e = K[:3] @ q
    expected = np.exp(e) / np.exp(e).sum()
    weights, context = (np.asarray(part) for part in answers.look(q, K, V, 3))
    assert weights.shape == (5,), f"{weights.shape} weights, expected one for each row of K: (5,)"
    assert not weights[3:].any(), "the padding has weight"
    assert np.allclose(weights[:3], expected), "the weights are not the softmax of q . k over the source"
    assert np.isfinite(context).all(), "the context is not finite: the padding may hold NaN, and 0 times NaN is NaN"
    assert np.allclose(context, expected @ V[:3]), "the context is not the mean of the values with these weights"


def check_13_4(answers: ModuleType) -> None:
    sparsemax = make_alignment("sparsemax", query_width=1)
    rng = np.random.default_rng(4)
    for scores in (rng.normal(size=8), 5 * rng.normal(size=8), np.zeros(4), np.array([3.0])):
        given = torch.tensor(scores)[None, None]
        lengths, unused = torch.tensor([len(scores)]), torch.zeros(1, 1, 1)
        expected = sparsemax(given, unused, torch.zeros(1, 1), lengths)[0, 0].numpy()
        found = np.asarray(answers.sparsemax(scores), dtype=float)
        assert found.shape == scores.shape, f"the shape is {found.shape}, expected {scores.shape}"
        assert abs(found.sum() - 1) < 1e-6, f"the weights of {scores.round(2)} sum to {found.sum():.4f}"
        assert np.allclose(found, expected, atol=1e-6), "not max(e - tau, 0): is tau the same for all places?"


def check_13_5(answers: ModuleType) -> None:
    A = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.1, 0.5, 0.4], [0.2, 0.2, 0.6]])
    for right, expected in (([0, 1, 1, 2], 3 / 4), ([0, 1, 1, -1], 2 / 3), ([-1, 2, -1, -1], 1.0)):
        found = float(answers.agreement(A, np.array(right)))
        assert abs(found - expected) < 1e-12, f"for right = {right}: {found:.3f}, expected {expected:.3f}"

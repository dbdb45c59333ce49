"""Checks of the exercises of chapter 14."""

from types import ModuleType

import numpy as np
import torch

from statewise.encoders import basic_attention
from statewise.mixers import BasicAttention


def check_14_1(answers: ModuleType) -> None:
    movies = np.array([[2.0, -1.0], [-1.5, 2.0], [1.2, 1.5], [-1.0, -1.5]])
    for likes, seen, expected in (
        ((1.0, -1.0), (0, 0, 0, 0), 0),
        ((1.0, -1.0), (1, 0, 0, 0), 3),
        ((0.0, 1.0), (0, 1, 0, 0), 2),
        ((-1.0, -1.0), (0, 0, 0, 1), 1),
    ):
        found = answers.recommend(np.array(likes), movies, np.array(seen, dtype=bool))
        assert found == expected, f"for likes {likes} and seen {seen}: movie {found}, expected {expected}"


def check_14_2(answers: ModuleType) -> None:
    x = np.random.default_rng(2).normal(size=(5, 3))
    for vectors in (x, 100 * x, x[:1]):
        expected = basic_attention(torch.tensor(vectors)[None])[0].numpy()
        found = np.asarray(answers.self_attention(vectors))
        assert found.shape == vectors.shape, f"the shape is {found.shape}, expected {vectors.shape}"
        assert np.isfinite(found).all(), "not finite: subtract the largest score before the exponential"
        assert np.allclose(found, expected), "not the mean of all rows with the softmax of x_i . x_j over j as weights"


def check_14_3(answers: ModuleType) -> None:
    x = np.random.default_rng(3).normal(size=(6, 4))
    mixer = BasicAttention(4).double()
    expected = mixer(torch.tensor(x)[None])[0][0].numpy()
    state = np.zeros((0, 4))
    for t, row in enumerate(x):
        found, state = answers.causal_step(row, state)
        assert np.shape(state) == (t + 1, 4), f"after word {t + 1} the state has the shape {np.shape(state)}"
        assert np.allclose(found, expected[t]), f"output {t + 1} is not a mean of the words so far, its own included"


def check_14_4(answers: ModuleType) -> None:
    rng = np.random.default_rng(4)
    likes, traits, A = rng.normal(size=(6, 3)), rng.normal(size=(5, 3)), rng.normal(size=(3, 3))
    found = np.asarray(answers.matching_traits(traits, A))
    assert found.shape == traits.shape, f"the shape is {found.shape}, expected {traits.shape}"
    assert np.allclose((likes @ A.T) @ found.T, likes @ traits.T), "the scores have changed"


def check_14_5(answers: ModuleType) -> None:
    x = np.random.default_rng(5).normal(size=(4, 3))
    cases = {
        "a function of each row alone": (np.tanh, True),
        "rows minus their mean": (lambda a: a - a.mean(0), True),
        "basic self-attention": (lambda a: basic_attention(torch.tensor(a)[None])[0].numpy(), True),
        "a running sum": (lambda a: a.cumsum(0), False),
        "the first row moved by 1": (lambda a: a + np.eye(len(a))[:, :1], False),
        "the last two rows exchanged": (lambda a: a[[*range(len(a) - 2), -1, -2]], False),
    }
    for name, (function, expected) in cases.items():
        found = answers.is_equivariant(function, x)
        assert found in (True, False), f"{name}: {found}, expected True or False"
        assert bool(found) is expected, f"{name}: {found}, expected {expected}"

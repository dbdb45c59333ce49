"""Checks of the exercises of chapter 2."""

import warnings
from collections import Counter
from math import inf, isclose
from types import ModuleType

import numpy as np


def check_2_1(answers: ModuleType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given, expected in (([0.25] * 8, 4.0), ([1.0, 0.5], 2**0.5), ([1.0] * 3, 1.0), ([0.5, 0.0, 0.5], inf)):
            found = float(answers.perplexity(np.array(given)))
            assert isclose(found, expected), f"of {given}: {found}, expected {expected}"


def check_2_2(answers: ModuleType) -> None:
    ids = np.random.default_rng(3).integers(5, size=400)
    for order in (1, 2, 4):
        seen = len({tuple(ids[at : at + order]) for at in range(len(ids) - order)})
        found = tuple(map(int, answers.count_contexts(ids.copy(), order, 7)))
        # The last `order` symbols are a context that nothing followed; counting them or not are both fine.
        ending = len({tuple(ids[at : at + order]) for at in range(len(ids) - order + 1)})
        assert found[0] in (seen, ending), f"order {order}: {found[0]} different contexts, expected {seen}"
        assert found[1] == 7**order, f"order {order} of 7 symbols: {found[1]} possible, expected {7**order}"


def check_2_3(answers: ModuleType) -> None:
    ids = np.random.default_rng(4).integers(3, size=300)
    for context in ((0,), (1, 2), (2, 2, 1)):
        n = len(context)
        followed = Counter(int(ids[at]) for at in range(n, len(ids)) if tuple(ids[at - n : at]) == context)
        expected = np.array([followed[v] + 0.5 for v in range(4)])
        found = np.asarray(answers.add_k(ids.copy(), context, 0.5, 4))
        assert found.shape == (4,), f"the distribution has the shape {found.shape}, expected (4,)"
        assert np.allclose(found, expected / expected.sum()), f"after {context}: {found}"
    assert np.allclose(answers.add_k(ids, (3, 3), 0.5, 4), 0.25), "a context that never occurred: not uniform"


def check_2_4(answers: ModuleType) -> None:
    rng = np.random.default_rng(5)
    for _ in range(5):
        start, step = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(4), size=3)
        chain = np.einsum("a,ab,bc->abc", start, step, rng.dirichlet(np.ones(2), size=4))
        assert bool(answers.is_first_order(chain)), "a first-order chain was not recognised"
        other = chain * rng.uniform(0.9, 1.1, size=chain.shape)
        assert not bool(answers.is_first_order(other / other.sum())), "x_3 depends on x_1 here, and it was not noticed"


def check_2_5(answers: ModuleType) -> None:
    rng = np.random.default_rng(6)
    for size in (2, 5):
        transition = rng.dirichlet(np.ones(size), size=size)
        found = np.asarray(answers.long_run(transition.copy()))
        assert isclose(found.sum(), 1), f"the probabilities sum to {found.sum()}"
        expected = np.linalg.matrix_power(transition, 1000)[0]
        assert np.allclose(found, expected, atol=1e-8), f"{found}, expected {expected}"
        assert np.allclose(found @ transition, found, atol=1e-8), "a further step changes it"

"""Checks of the exercises of chapter 9."""

from types import ModuleType

import numpy as np


def check_9_1(answers: ModuleType) -> None:
    P = np.random.default_rng(1).dirichlet(np.ones(8))
    found = np.asarray(answers.stop_probabilities(P.tolist()), dtype=float)
    assert found.shape == (8,), f"the shape is {found.shape}, expected one for each length, (8,)"
    assert abs(found[0] - P[0]) < 1e-12, "after 0 symbols the stop probability is that of the length 0"
    assert abs(found[-1] - 1) < 1e-9, "after the largest length it must stop"
    for n in range(8):
        assert abs(found[n] - P[n] / P[n:].sum()) < 1e-9, f"after {n} symbols: not P(n) among the lengths from {n} on"
    even = np.asarray(answers.stop_probabilities([0.5, 0.25, 0.25]), dtype=float)
    assert np.allclose(even, [0.5, 0.5, 1.0]), "for the lengths 1/2, 1/4, 1/4 it is 1/2, 1/2, 1"


def check_9_2(answers: ModuleType) -> None:
    stops = [0.1, 0.5, 0.2]
    found = np.asarray(answers.length_distribution(stops), dtype=float)
    assert found.shape == (4,), f"{found.shape} entries, expected three lengths and what is longer"
    assert abs(found.sum() - 1) < 1e-9, f"all together have {found.sum():.4f}, expected 1"
    assert np.allclose(found, [0.1, 0.45, 0.09, 0.36]), "P(n) is s_n times the product of 1 - s_t before it"


def check_9_3(answers: ModuleType) -> None:
    rng = np.random.default_rng(2)
    p, stops, total = rng.dirichlet(np.ones(2), size=4), rng.random(4), 0.0
    for n in range(4):
        for number in range(2**n):
            content = [number >> k & 1 for k in range(n)]
            expected = float(np.prod([(1 - stops[t]) * p[t][x] for t, x in enumerate(content)]) * stops[n])
            found = float(answers.log_probability(p, stops, content))
            assert abs(found - np.log(expected)) < 1e-9, (
                f"content {content}: {found:.4f}, expected {np.log(expected):.4f}"
            )
            total += np.exp(found)
    assert abs(total + np.prod(1 - stops) - 1) < 1e-9, "all contents up to 3 symbols, and longer, do not make 1"


def check_9_4(answers: ModuleType) -> None:
    assert list(answers.countdown(3, 6)) == [3, 2, 1, 0, 0, 0], "length 3, 6 steps: expected 3, 2, 1, 0, 0, 0"
    assert list(answers.countdown(0, 2)) == [0, 0], "a length of 0 has nothing to come"
    assert list(answers.countdown(5, 2)) == [5, 4], "two steps of a length of 5"


def check_9_5(answers: ModuleType) -> None:
    for length, block, every in ((24, 3, 4), (100, 25, 4), (31, 5, 2), (10, 4, 3)):
        found = list(answers.held_out(length, block, every))
        assert len(found) == length, f"{len(found)} entries for {length} steps"
        for t in range(length):
            expected = t // block % every == every - 1
            says = "held out" if expected else "for training"
            assert bool(found[t]) == expected, f"blocks of {block}, every {every}: step {t} (from 0) is {says}"

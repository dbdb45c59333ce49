"""Checks of the exercises of chapter 18."""

import math
from types import ModuleType

import numpy as np

T_QUANTILES = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # by the number of values


def check_18_1(answers: ModuleType) -> None:
    for distance in (1, 2, 8, 1024):
        expected = {"chain": distance, "tree": 2 * int(math.log2(distance)), "attention": 1}
        for kind, steps in expected.items():
            found = answers.path(kind, distance)
            assert found == steps, f"{kind}, distance {distance}: {found} steps, expected {steps}"


def check_18_2(answers: ModuleType) -> None:
    for linear, fixed, slope in ((10, 5, 1), (3, 2, 1), (1000, 1, 7), (100, 99, 2)):
        symbols, first, second = 0, 0, 0
        while second <= first:
            first, second, symbols = first + linear, second + fixed + slope * symbols, symbols + 1
        found = answers.crossover(linear, fixed, slope)
        assert found == symbols, (
            f"{linear} a symbol against {fixed} + {slope} t: {found} symbols, expected {symbols}; compare the sums"
        )


def check_18_3(answers: ModuleType) -> None:
    rng = np.random.default_rng(3)
    for count, quantile in T_QUANTILES.items():
        values = rng.normal(size=count)
        mean, half = answers.interval(list(values))
        assert np.isclose(mean, values.mean()), "the first number is the mean"
        assert np.isclose(half, quantile * values.std(ddof=1) / math.sqrt(count), rtol=1e-3), (
            f"{count} values have {count - 1} degrees of freedom; the half width is t · s / √n, with s over n - 1"
        )


def check_18_4(answers: ModuleType) -> None:
    for nouns in (["dog"], ["dogs", "cat"], ["keys", "man", "dogs"], ["cat", "cats", "cats", "dog", "men's"]):
        words = [*nouns, *["VERB"] * len(nouns)]
        found = [bool(plural) for plural in answers.agree(list(words))]
        expected = [noun.endswith("s") for noun in reversed(nouns)]
        assert found == expected, f"{' '.join(words)}: {found}, expected {expected}; the last noun's verb comes first"


def check_18_5(answers: ModuleType) -> None:
    rows = {"list": (0.1, 90, 900), "weights": (0.2, 50, 300), "vector": (0.6, 40, 10), "slow": (0.3, 60, 400)}
    found = answers.undominated(rows)
    assert list(found) == ["list", "vector", "weights"], f"{found}: 'slow' is worse than 'weights' in every column"
    rows["twin"] = rows["list"]
    found = answers.undominated(rows)
    assert list(found) == ["list", "twin", "vector", "weights"], f"{found}: equals do not beat each other"
    rows["better"] = (0.1, 90, 899)
    found = answers.undominated(rows)
    assert list(found) == ["better", "vector", "weights"], f"{found}: fewer bytes and nothing worse is enough"

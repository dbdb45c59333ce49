"""Checks of the exercises of chapter 1."""

from types import ModuleType

import numpy as np


def _joint() -> np.ndarray:
    joint = np.random.default_rng(7).random((2, 3, 4))
    return joint / joint.sum()


def check_1_1(answers: ModuleType) -> None:
    joint = _joint()
    first, second, third = (np.asarray(factor) for factor in answers.conditionals(joint.copy()))
    shapes = [factor.shape for factor in (first, second, third)]
    assert shapes == [(2,), (2, 3), (2, 3, 4)], f"of a joint of shape (2, 3, 4) the factors have the shapes {shapes}"
    for name, factor in (("p(x_1)", first), ("p(x_2 | x_1)", second), ("p(x_3 | x_1, x_2)", third)):
        assert np.allclose(factor.sum(-1), 1), f"{name} does not sum to 1 over its last axis"
    product = first[:, None, None] * second[:, :, None] * third
    assert np.allclose(product, joint, rtol=0, atol=1e-12), "the product of the factors is not the joint distribution"


def check_1_2(answers: ModuleType) -> None:
    joint = _joint()
    last, second, third = (np.asarray(factor) for factor in answers.reverse_conditionals(joint.copy()))
    shapes = [factor.shape for factor in (last, second, third)]
    assert shapes == [(4,), (3, 4), (2, 3, 4)], f"of a joint of shape (2, 3, 4) the factors have the shapes {shapes}"
    assert np.allclose(last, joint.sum((0, 1))), "the first factor is not the distribution of the last symbol"
    for name, factor in (("p(x_2 | x_3)", second), ("p(x_1 | x_2, x_3)", third)):
        assert np.allclose(factor.sum(0), 1), f"{name} does not sum to 1 over its first axis"
    assert np.allclose(last * second * third, joint, rtol=0, atol=1e-12), "the product is not the joint distribution"


def check_1_3(answers: ModuleType) -> None:
    ids = np.arange(1003)
    given = ids.copy()
    found = np.asarray(answers.shuffle_within(given, 10, 3))
    assert np.array_equal(given, ids), "the input was changed"
    assert found.shape == ids.shape, f"{len(ids)} symbols became {len(found)}"
    assert np.array_equal(np.sort(found), ids), "symbols were lost or repeated"
    assert np.array_equal(found // 10, ids // 10), "a symbol has left its block"
    assert (found != ids).mean() > 0.5, "hardly anything has moved"
    within = (found % 10)[:1000].reshape(100, 10)
    assert len({tuple(row) for row in within}) > 90, "every block was shuffled in the same way"
    assert np.array_equal(found, answers.shuffle_within(ids, 10, 3)), "the same seed gave another result"
    assert not np.array_equal(found, answers.shuffle_within(ids, 10, 4)), "another seed gave the same result"


def check_1_4(answers: ModuleType) -> None:
    rng = np.random.default_rng(5)
    ids = rng.integers(4, size=4000) * 3  # some numbers below the largest never occur
    ids[2::2] = ids[:-2:2]  # the even places repeat
    for distance in (1, 2, 5):
        a, b = ids[:-distance], ids[distance:]
        expected = 0.0
        for x in np.unique(a):
            for y in np.unique(b):
                both = np.mean((a == x) & (b == y))
                if both:
                    expected += both * np.log2(both / (np.mean(a == x) * np.mean(b == y)))
        found = float(answers.information(ids.copy(), distance))
        assert abs(found - expected) < 1e-9, f"at distance {distance}: {found:.6f} bits, expected {expected:.6f}"


def check_1_5(answers: ModuleType) -> None:
    p_1, p_2_given_1 = np.array([0.5, 0.2, 0.3]), np.array([[0.9, 0.1], [0.4, 0.6], [0.25, 0.75]])
    for value in (0, 1):
        seeing, setting = answers.seeing_and_setting(p_1.copy(), p_2_given_1.copy(), value)
        together = p_1 * p_2_given_1[:, value]
        assert np.allclose(seeing, together / together.sum()), f"seeing x_2 = {value}: not Bayes' rule"
        assert np.allclose(setting, p_1), f"setting x_2 = {value}: the past has changed"

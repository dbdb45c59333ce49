"""Do the counts of tokens change along a text? Against SciPy, and on chains that are stationary and that are not."""

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency

from statewise.specs import UserError
from statewise.tasks.language_model import token_stationarity
from statewise.tasks.language_model.stationarity import block_counts

SEGMENTS, BLOCK = 4, 500


def chain(length: int, *, stay: float, seed: int, symbols: int = 3) -> np.ndarray:
    """Each token is the one before with probability `stay`, else any."""
    generator = np.random.default_rng(seed)
    stays, others = generator.random(length) < stay, generator.integers(symbols, size=length)
    tokens = [0]
    for stays_here, other in zip(stays[1:], others[1:], strict=True):
        tokens.append(tokens[-1] if stays_here else int(other))
    return np.array(tokens)


def counted(keys_BT: np.ndarray) -> np.ndarray:
    """A row for each segment, a column for each key."""
    keys = np.unique(keys_BT)
    return np.array([[(part == key).sum() for key in keys] for part in np.array_split(keys_BT, SEGMENTS)])


def test_row_b7_tokens_pairs_and_transitions_agree_with_scipy() -> None:
    tokens = chain(8000, stay=0.3, seed=0)
    found = token_stationarity(tokens, segments=SEGMENTS, block=BLOCK, shuffles=19)
    text_BT = tokens.reshape(-1, BLOCK)
    pair_BT = text_BT[:, :-1] * 3 + text_BT[:, 1:]
    for test, keys_BT in ((found.tokens, text_BT), (found.pairs, pair_BT)):
        theirs = chi2_contingency(counted(keys_BT), correction=False)
        assert test.chi_squared == pytest.approx(theirs.statistic, rel=1e-10)
        assert test.freedom == theirs.dof
        assert test.p_independent == pytest.approx(theirs.pvalue, rel=1e-9)
    tables = [counted(np.where(text_BT[:, :-1] == last, text_BT[:, 1:], -1))[:, 1:] for last in range(3)]
    theirs_each = [chi2_contingency(table, correction=False) for table in tables]
    assert found.transitions.chi_squared == pytest.approx(sum(one.statistic for one in theirs_each), rel=1e-10)
    assert found.transitions.freedom == sum(one.dof for one in theirs_each)
    p = chi2.sf(found.transitions.chi_squared, found.transitions.freedom)
    assert found.transitions.p_independent == pytest.approx(float(p), rel=1e-9)


def test_row_b7_rare_classes_are_counted_together() -> None:
    key_BT = np.array([[0, 0, 1, 2], [0, 0, 0, 3], [0, 1, 1, 4], [1, 0, 0, 5]])
    count_BC, group_C = block_counts(key_BT, np.zeros_like(key_BT), least=3)
    assert count_BC.tolist() == [[2, 1, 1], [3, 0, 1], [1, 2, 1], [2, 1, 1]]
    assert group_C.tolist() == [0, 0, 0]


def test_row_b7_dependence_alone_is_not_change() -> None:
    """A stationary chain that stays where it is: the plain chi-squared test rejects it, the shuffled blocks do not."""
    tests = [token_stationarity(chain(12_000, stay=0.9, seed=seed), shuffles=99) for seed in range(12)]
    assert sum(found.tokens.p_independent < 0.05 for found in tests) >= 11
    assert sum(not found.stationary for found in tests) <= 2


def test_row_b7_change_is_found_where_it_is() -> None:
    """Of the transitions alone, and of the frequencies of tokens."""
    law = np.concatenate([chain(6000, stay=0.6, seed=1), chain(6000, stay=0.1, seed=2)])
    found = token_stationarity(law, shuffles=99)
    assert not found.stationary
    assert found.transitions.p == 0.01
    assert found.tokens.p > 0.05
    rising = np.random.default_rng(0).random(12_000) < np.linspace(0.4, 0.6, 12_000)
    found = token_stationarity(rising.astype(int), shuffles=99)
    assert not found.stationary
    assert found.tokens.p == 0.01


def test_row_b7_a_short_text_is_refused() -> None:
    with pytest.raises(UserError, match="too few for 8 segments"):
        token_stationarity(np.arange(1000) % 3)
    with pytest.raises(UserError, match="has no pairs"):
        token_stationarity(np.arange(1000) % 3, block=1)

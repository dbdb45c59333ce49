"""Intervals, tests and corrections against SciPy and statsmodels; orders against what must hold of any."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats.multitest import multipletests

from statewise.comparison.statistics import (
    Standing,
    compare,
    holm,
    paired_t,
    pooled_p,
    ranking,
    standing,
    t_interval,
)
from statewise.comparison.trial import Found
from statewise.specs import UserError

VALUES = [2.31, 2.28, 2.40, 2.35, 2.29]
OTHERS = [2.41, 2.33, 2.42, 2.47, 2.30]


def found(
    entry: str, seed: int, figure: float, *, metric: str = "bits", phase: Literal["search", "final"] = "final"
) -> Found:
    return Found(
        key=f"{entry}-{seed}",
        entry=entry,
        seed=seed,
        phase=phase,
        settings={},
        figures={metric: figure},
        curve=[],
        parameters=1,
        flops_per_token=1.0,
        state_bytes={},
        steps=1,
        seconds=1.0,
        tokens=1,
        tokens_per_second=1.0,
        decode_tokens_per_second=None,
        peak_bytes=1,
        sample=None,
        surprise=None,
        weights_sha256="",
    )


def table(figures: dict[str, Sequence[float]]) -> list[Found]:
    return [found(name, seed, x) for name, row in figures.items() for seed, x in enumerate(row)]


@pytest.mark.parametrize("values", [VALUES, VALUES[:2], [0.0, 5.0, 1e6]])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_t_interval(values: list[float], confidence: float) -> None:
    expected = stats.t.interval(confidence, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert t_interval(values, confidence=confidence) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_paired_t(size: int) -> None:
    gaps = [a - b for a, b in zip(VALUES[:size], OTHERS)]
    expected = stats.ttest_rel(VALUES[:size], OTHERS[:size]).pvalue
    assert paired_t(gaps) == pytest.approx(expected, rel=1e-9)


def test_what_does_not_vary_is_not_tested() -> None:
    assert paired_t([0.1]) is None
    assert paired_t([0.3, 0.3, 0.3]) is None


def test_holm() -> None:
    p_values = [0.01, 0.04, 0.03, 0.005, 0.9]
    expected = multipletests(p_values, method="holm")[1]
    assert holm(p_values) == pytest.approx(expected.tolist())
    assert holm([0.01, None, 0.04]) == pytest.approx([0.02, None, 0.04])
    assert holm([]) == []


@pytest.mark.parametrize("missing", [None, (1, 2), (0, 0)])
def test_pooled_is_a_fit_of_entries_and_seeds(missing: tuple[int, int] | None) -> None:
    figures = np.random.default_rng(3).normal(size=(4, 3)) + np.arange(4)[:, None]
    rows = [(k, n) for k in range(4) for n in range(3) if (k, n) != missing]
    design = np.zeros((len(rows), 4 + 2))
    for row, (k, n) in enumerate(rows):
        design[row, k] = 1
        if n:
            design[row, 3 + n] = 1
    fit = sm.OLS([figures[k, n] for k, n in rows], design).fit()
    all_standings = [
        standing(str(k), {n: None if (k, n) == missing else figures[k, n] for n in range(3)}) for k in range(4)
    ]
    got = pooled_p(all_standings)
    assert len(got) == 6
    for (i, j), p in got.items():
        contrast = np.zeros(6)
        contrast[i], contrast[j] = 1, -1
        assert p == pytest.approx(float(fit.t_test(contrast).pvalue), rel=1e-6)


def test_one_seed_has_no_interval_and_no_order_that_is_more_than_luck() -> None:
    one = standing("a", {0: 2.0})
    assert (one.mean, one.deviation, one.t_interval) == (2.0, None, None)
    order = ranking(table({"a": [2.0], "b": [9.0]}), metric="bits", better="lower")
    assert order.groups == [["a", "b"]]
    assert "One seed" in order.method


def test_failed_seeds_are_counted_and_left_out() -> None:
    one = standing("a", {0: 2.0, 1: math.nan, 2: None, 3: 4.0})
    assert (one.seeds, one.mean, one.failed) == ((0, 3), 3.0, 2)


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_groups(better: Literal["lower", "higher"]) -> None:
    chance = np.random.default_rng(2)
    centres = {"a": 1.0, "b": 1.0, "c": 5.0, "d": 5.0, "e": 9.0}
    data = table({name: (centre + 0.01 * chance.normal(size=6)).tolist() for name, centre in centres.items()})
    order = ranking(data, metric="bits", better=better)
    groups = [set(group) for group in order.groups]
    expected = [{"a", "b"}, {"c", "d"}, {"e"}]
    assert groups == (expected if better == "lower" else expected[::-1])
    assert order.group("e") == (3 if better == "lower" else 1)
    assert not order.between("b", "a").distinguishable
    assert order.between("a", "c").distinguishable


def test_equal_figures_are_one_group() -> None:
    order = ranking(table({"a": [1.0, 1.0], "b": [1.0, 1.0]}), metric="bits", better="lower")
    assert order.groups == [["a", "b"]]


def test_under_no_difference_few_are_told_apart() -> None:
    """The chance that any pair of a study is called different is what it says: at most one in twenty."""
    chance = np.random.default_rng(5)
    wrong = 0
    for _ in range(100):
        rows = [
            Standing(str(k), (0, 1, 2), tuple(chance.normal(size=3).tolist()), 0.0, None, None, 0) for k in range(4)
        ]
        wrong += any(one.distinguishable for one in compare(rows))
    assert wrong / 100 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 100)


def test_search_trials_do_not_count_and_unlike_figures_are_refused() -> None:
    data = [*table({"a": [1.0, 1.1]}), found("a", 2, 0.1, phase="search")]
    assert ranking(data, metric="bits", better="lower").standings[0].seeds == (0, 1)
    with pytest.raises(UserError, match="'b' has no 'bits'"):
        ranking([*data, found("b", 0, 3.0, metric="accuracy")], metric="bits", better="lower")


def test_whom_no_seed_changes_is_compared_by_the_others_spread_and_adds_none() -> None:
    """Alone with one other: SciPy's test of a mean. With several: their spread about their own means, together."""
    sure = standing("markov", dict.fromkeys(range(5), 2.2), deterministic=True)
    one, other = (standing(name, dict(enumerate(row))) for name, row in (("a", VALUES), ("b", OTHERS)))
    assert pooled_p([sure, one])[0, 1] == pytest.approx(stats.ttest_1samp(VALUES, 2.2).pvalue, rel=1e-9)
    found = pooled_p([one, sure, other])
    assert found[0, 2] == pytest.approx(pooled_p([one, other])[0, 1], rel=1e-12)  # as if it were not there
    design = np.kron(np.eye(2), np.ones((5, 1)))
    fit = sm.OLS([*VALUES, *OTHERS], design).fit()
    assert found[0, 1] == pytest.approx(float(fit.t_test(([1, 0], 2.2)).pvalue), rel=1e-9)
    assert found[1, 2] == pytest.approx(float(fit.t_test(([0, 1], 2.2)).pvalue), rel=1e-9)
    twin, third = sure._replace(entry="twin"), standing("c", dict.fromkeys(range(5), 2.1), deterministic=True)
    assert pooled_p([sure, twin, third]) == {(0, 2): 0.0, (1, 2): 0.0}


def test_the_same_weights_with_every_seed_are_deterministic() -> None:
    rows = [*table({"a": [1.0, 1.0]}), *table({"b": [1.0, 1.0]}), *table({"c": [1.0, 1.1]})]
    made = [one._replace(weights_sha256=str(one.seed)) if one.entry == "a" else one for one in rows]
    told = {one.entry: one.deterministic for one in ranking(made, metric="bits", better="lower").standings}
    assert told == {"a": False, "b": True, "c": False}  # equal figures alone may be chance

"""Splits and labels: complete, disjoint, fair, repeatable."""

from collections import Counter

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight

from statewise.data import UNSEEN, Labels, hold_out


@given(
    st.integers(2, 80),
    st.floats(0.01, 0.99),
    st.integers(0, 9),
    st.none() | st.integers(2, 10),
)
def test_parts_are_disjoint_whole_and_of_about_the_share(
    count: int, share: float, seed: int, num_groups: int | None
) -> None:
    groups = None if num_groups is None else [i % num_groups for i in range(count)]
    assume(groups is None or len(set(groups)) > 1)
    train_N, held_M = hold_out(count, share=share, seed=seed, groups=groups)
    assert sorted([*train_N, *held_M]) == list(range(count))
    assert len(train_N)
    assert len(held_M)
    assert np.array_equal(held_M, hold_out(count, share=share, seed=seed, groups=groups).held_M)
    if groups is None:
        assert abs(len(held_M) - share * count) <= 1
    else:
        assert not {groups[i] for i in train_N} & {groups[i] for i in held_M}


def test_by_label_every_label_gives_its_share() -> None:
    strata = ["a"] * 50 + ["b"] * 30 + ["c"]
    held = hold_out(81, share=0.2, strata=strata).held_M
    assert Counter(strata[i] for i in held) == {"a": 10, "b": 6}


def test_rare_labels_are_held_out_too() -> None:
    """A fifth of two is none, yet a fifth of ten pairs is two; what is alone in its label is learned from."""
    strata = [*"aabbccddeeffgghhiijj", "k"]
    held = hold_out(21, share=0.2, strata=strata).held_M
    assert len(held) == 4
    assert len({strata[i] for i in held}) == 4
    assert "k" not in {strata[i] for i in held}


def test_seeds_differ() -> None:
    assert hold_out(100, share=0.1, seed=1).held_M.tolist() != hold_out(100, share=0.1, seed=2).held_M.tolist()


def test_labels_there_and_back() -> None:
    labels = Labels.of(["b", "a", "b", "ü"])
    assert (labels.names, labels.counts, len(labels)) == (("a", "b", "ü"), (1, 2, 1), 3)
    ids_N, unseen = labels.encode(["b", "ü"])
    assert labels.decode(ids_N) == ["b", "ü"]
    assert not unseen
    again = Labels.from_json(labels.to_json())
    assert (again.names, again.counts) == (labels.names, labels.counts)
    assert Labels.of(["10", "9", "0"]).names == ("0", "9", "10")
    ids_N, unseen = labels.encode(["x", "a", "x"], unseen="wrong")
    assert ids_N.tolist() == [UNSEEN, 0, UNSEEN]
    assert unseen == {"x": 2}


def test_weights_are_those_of_scikit_learn() -> None:
    given_ = [0] * 7 + [1] * 2 + [2]
    wanted = compute_class_weight("balanced", classes=np.arange(3), y=given_)
    np.testing.assert_allclose(Labels.of(map(str, given_)).weights(), wanted)

"""The laws whose statement says "for every cut, length, choice of rows", on sizes and choices drawn at random."""

from hypothesis import given, settings
from hypothesis import strategies as st
from listed import MIXERS_FIRST, Listed, each

from statewise.core import laws

quickly = settings(deadline=None, max_examples=20)
batches = st.integers(1, 4)
seeds = st.integers(0, 2**31)


@each(MIXERS_FIRST)
@quickly
@given(data=st.data(), batch=batches, time=st.integers(2, 9), seed=seeds)
def test_split_at_any_cuts(machine: Listed, data: st.DataObject, batch: int, time: int, seed: int) -> None:
    cuts = data.draw(st.lists(st.integers(1, time - 1), min_size=1, max_size=3, unique=True), label="cuts")
    made = machine()
    case = laws.make_case(made, batch=batch, time=time, seed=seed)
    assert laws.split(made, case, cuts=cuts) <= 1e-10


@each(MIXERS_FIRST)
@quickly
@given(data=st.data(), batch=batches, time=st.integers(1, 7), seed=seeds)
def test_ragged_at_any_lengths(machine: Listed, data: st.DataObject, batch: int, time: int, seed: int) -> None:
    one = st.integers(0, time)
    equal = one.map(lambda length: [length] * batch)
    lengths = data.draw(st.lists(one, min_size=batch, max_size=batch) | equal, label="lengths")
    made = machine()
    case = laws.make_case(made, batch=batch, time=time, seed=seed)
    assert laws.ragged(made, case, lengths=lengths) <= 1e-10


@each(MIXERS_FIRST)
@quickly
@given(data=st.data(), batch=batches, time=st.integers(1, 5), seed=seeds)
def test_any_rows_in_any_order(machine: Listed, data: st.DataObject, batch: int, time: int, seed: int) -> None:
    some = st.lists(st.integers(0, batch - 1), min_size=1, max_size=6)
    order = data.draw(some | st.permutations(range(batch)), label="order")
    made = machine()
    case = laws.make_case(made, batch=batch, time=time, seed=seed)
    assert laws.rows_law(made, case, order=order) <= 1e-10


@each(MIXERS_FIRST)
@quickly
@given(batch=batches, time=st.integers(1, 6), seed=seeds)
def test_the_other_laws_at_any_size(machine: Listed, batch: int, time: int, seed: int) -> None:
    made = machine()
    case = laws.make_case(made, batch=batch, time=time, seed=seed)
    for law in ("step", "causal", "pure", "fork"):
        assert laws.EXACT[law](made, case) <= 1e-10, law

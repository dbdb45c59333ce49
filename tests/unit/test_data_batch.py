"""The order of reading: pure, complete, the same over any number of processes."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from statewise.data import Batches, evaluation_lanes, token_counts, unigram_nats
from statewise.data.batch import NUM_KEYS, permuted
from statewise.specs import UserError

END = 0


def stream(length: int) -> NDArray[np.uint16]:
    """Tokens that tell their own position, but for ends here and there."""
    tokens = np.arange(length, dtype=np.uint16)
    tokens[::17] = END
    tokens[-1] = END
    return tokens


@given(
    length=st.integers(30, 300),
    more=st.integers(0, 8),
    world=st.integers(1, 4),
    window=st.integers(1, 40),
    seed=st.integers(0, 2**63 - 1),
    step=st.integers(0, 10**9),
    order=st.sampled_from(["sequential", "random", "shuffled"]),
)
def test_ranks_together_are_one_process(
    length: int, more: int, world: int, window: int, seed: int, step: int, order: str
) -> None:
    options = {"end_id": END, "batch": world + more, "window": window, "order": order, "seed": seed}
    whole = Batches(stream(length), **options).at(step)
    parts = [Batches(stream(length), **options, rank=rank, world=world).at(step) for rank in range(world)]
    assert torch.equal(torch.cat([part.inputs_BT for part in parts]), whole.inputs_BT)
    sizes = [len(part.inputs_BT) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert torch.equal(torch.cat([part.targets_BT for part in parts]), whole.targets_BT)
    assert {part.fresh for part in parts} == {whole.fresh}
    resets_BT = whole.inputs_BT == END
    assert (whole.resets_BT is None) == (not resets_BT.any())
    assert whole.resets_BT is None or torch.equal(whole.resets_BT, resets_BT)


@given(
    length=st.integers(2, 200),
    batch=st.integers(1, 8),
    window=st.integers(1, 50),
    epoch=st.integers(0, 1000),
    seed=st.integers(0, 1000),
)
def test_an_epoch_reads_rows_on_and_every_position_at_most_once(
    length: int, batch: int, window: int, epoch: int, seed: int
) -> None:
    tokens = np.arange(length, dtype=np.uint16)
    positions = length - 1
    if positions < batch:
        return
    batches = Batches(tokens, end_id=END, batch=batch, window=window, seed=seed)
    steps = [batches.at(epoch * batches.steps_per_epoch + step) for step in range(batches.steps_per_epoch)]
    assert [step.fresh for step in steps] == [True] + [False] * (len(steps) - 1)
    inputs_BT = torch.cat([step.inputs_BT for step in steps], dim=1)
    targets_BT = torch.cat([step.targets_BT for step in steps], dim=1)
    assert inputs_BT.shape == (batch, positions // batch)
    assert torch.equal(targets_BT, inputs_BT + 1)
    assert torch.equal(inputs_BT[:, 1:], (inputs_BT[:, :-1] + 1) % positions)
    assert len(inputs_BT.unique()) == inputs_BT.numel()
    assert inputs_BT.dtype == targets_BT.dtype == torch.int64


@settings(deadline=None, max_examples=50)  # a hundred batches each
@given(
    length=st.integers(2, 90),
    batch=st.integers(1, 9),
    window=st.integers(1, 50),
    epoch=st.integers(0, 1000),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_shuffled_epoch_reads_every_window_once(length: int, batch: int, window: int, epoch: int, seed: int) -> None:
    positions = length - 1
    if positions < batch:
        return
    tokens = np.arange(length, dtype=np.uint16)
    batches = Batches(tokens, end_id=END, batch=batch, window=window, seed=seed, order="shuffled")
    windows = positions // batches.window
    begin, stop = epoch * windows, (epoch + 1) * windows
    rows = np.concatenate([batches.at(step).inputs_BT.numpy() for step in range(begin // batch, -(-stop // batch))])
    rows = rows[begin % batch :][:windows]
    assert rows.shape == (windows, batches.window)
    assert len(np.unique(rows)) == rows.size
    assert np.array_equal(rows[:, 1:], (rows[:, :-1] + 1) % positions)


def test_a_computed_order_is_a_random_one() -> None:
    """Every thing goes everywhere equally often, and what is next to each other does not stay so."""
    chance, count, trials = np.random.default_rng(0), 33, 6000
    counts = np.zeros((count, count))
    neighbours = 0
    for _ in range(trials):
        order = permuted(np.arange(count), count, chance.integers(0, 2**64, NUM_KEYS, dtype=np.uint64))
        counts[np.arange(count), order] += 1
        neighbours += int((np.abs(np.diff(order)) == 1).sum())
    expected = trials / count
    assert ((counts - expected) ** 2 / expected).sum() < stats.chi2.ppf(0.9999, (count - 1) ** 2)
    assert neighbours / trials == pytest.approx(2 * (count - 1) / count, abs=5 * np.sqrt(2 / trials))


def test_a_place_of_a_shuffled_epoch_is_found_at_once() -> None:
    keys = np.arange(1, 1 + NUM_KEYS, dtype=np.uint64)
    index = np.arange(10**12 - 1000, 10**12)
    places = permuted(index, 10**12, keys)
    assert len(set(places.tolist())) == len(index)
    assert 0 <= places.min() <= places.max() < 10**12


def test_epochs_and_seeds_start_at_different_places() -> None:
    tokens = np.arange(60_000, dtype=np.uint16)
    starts = set()
    for seed in range(20):
        batches = Batches(tokens, end_id=END, batch=4, window=100, seed=seed)
        starts |= {int(batches.at(epoch * batches.steps_per_epoch).inputs_BT[0, 0]) for epoch in range(20)}
    assert len(starts) > 390
    assert max(starts) - min(starts) > 55_000


def test_the_order_is_fixed_for_ever() -> None:
    """A resumed run must see the data of the run it resumes, whatever was upgraded in between."""
    tokens = np.arange(10_000, dtype=np.uint16)
    sequential = Batches(tokens, end_id=END, batch=2, window=4, seed=7)
    random = Batches(tokens, end_id=END, batch=2, window=4, seed=7, order="random")
    assert sequential.at(123_456).inputs_BT[:, 0].tolist() == [8720, 3720]
    assert random.at(123_456).inputs_BT[:, 0].tolist() == [7523, 3076]


def test_random_windows_reach_every_start_and_are_fresh() -> None:
    batches = Batches(np.arange(14, dtype=np.uint16), end_id=END, batch=8, window=4, order="random")
    seen = [batches.at(step) for step in range(100)]
    assert all(batch.fresh for batch in seen)
    assert {int(start) for batch in seen for start in batch.inputs_BT[:, 0]} == set(range(10))
    assert batches.steps_per_epoch == 1


def test_a_window_longer_than_the_row_is_clipped() -> None:
    for order, length in (("sequential", 5), ("random", 10)):
        batches = Batches(np.arange(11, dtype=np.uint16), end_id=END, batch=2, window=64, order=order)
        assert batches.at(3).inputs_BT.shape == (2, length)


def test_batches_that_cannot_be() -> None:
    with pytest.raises(UserError, match=r"batch 2 cannot be shared by 3 processes.*\ntrain.batch=3, or fewer"):
        Batches(stream(100), end_id=END, batch=2, window=4, world=3)
    with pytest.raises(UserError, match="at most 9"):
        Batches(stream(10), end_id=END, batch=16, window=4, world=2)


def test_a_batch_is_fast() -> None:
    batches = Batches(np.zeros(1_000_000, dtype=np.uint16), end_id=END, batch=32, window=64)
    times = []
    for step in range(50):
        start = time.perf_counter()
        batches.at(step)
        times.append(time.perf_counter() - start)
    assert min(times) < 1e-3


@given(
    length=st.integers(1, 300),
    lanes=st.integers(1, 12),
    window=st.integers(1, 40),
    warm=st.integers(0, 60),
    limit=st.none() | st.integers(1, 400),
)
def test_lanes_count_each_position_once(length: int, lanes: int, window: int, warm: int, limit: int | None) -> None:
    tokens = np.arange(length, dtype=np.uint16)
    found = list(evaluation_lanes(tokens, end_id=END, lanes=lanes, window=window, warm=warm, limit=limit))
    counted = [int(i) for batch in found for i in batch.inputs_BT[batch.counted_BT]]
    targets = [int(i) for batch in found for i in batch.targets_BT[batch.counted_BT]]
    positions = min(length - 1, limit or length)
    assert sorted(counted) == list(range(positions))
    assert sorted(targets) == list(range(1, positions + 1))
    assert [batch.fresh for batch in found] == [True] * bool(found) + [False] * (len(found) - 1)
    if not found:
        return
    inputs_BT = torch.cat([batch.inputs_BT for batch in found], dim=1)
    counted_BT = torch.cat([batch.counted_BT for batch in found], dim=1)
    for row_T, counts_T in zip(inputs_BT, counted_BT):
        first, last = counts_T.nonzero()[0, 0], counts_T.nonzero()[-1, 0]
        assert counts_T[first : last + 1].all()
        assert torch.equal(row_T[: last + 1], torch.arange(int(row_T[0]), int(row_T[0]) + int(last) + 1))
        assert first == min(warm, int(row_T[first]))
    assert len(inputs_BT) == 1 or len(inputs_BT) * max(window, warm) <= positions


def test_lanes_mark_document_starts() -> None:
    tokens = stream(200)
    for batch in evaluation_lanes(tokens, end_id=END, lanes=4, window=9, warm=5):
        resets_BT = batch.inputs_BT == END
        assert (batch.resets_BT is None) == (not resets_BT.any())
        assert batch.resets_BT is None or torch.equal(batch.resets_BT, resets_BT)


def test_unigram_baseline_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statewise.data.corpus._CHUNK", 2)
    train = np.array([0, 1, 1, 2, 0], dtype=np.uint16)
    evaluated = np.array([0, 3, 1], dtype=np.uint16)
    expected = -(np.log(1 / 8) + np.log(3 / 8)) / 2
    assert unigram_nats(token_counts(train, 4), evaluated) == pytest.approx(expected, rel=1e-12)

"""Ragged batches: each example once an epoch, alike in length, the same over any number of processes."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from statewise.data import RaggedBatches, evaluation_batches, pad
from statewise.specs import UserError

lengths = st.lists(st.integers(0, 40), min_size=1, max_size=60)


@given(lengths, st.integers(0, 20), st.integers(1, 4), st.integers(0, 2**63 - 1), st.integers(0, 9), st.integers(1, 5))
def test_an_epoch_reads_every_example_once(
    lengths_N: list[int], more: int, world: int, seed: int, epoch: int, bucket: int
) -> None:
    batch = world + more
    alone = RaggedBatches(lengths_N, batch=batch, seed=seed, bucket=bucket)
    ranks = [
        RaggedBatches(lengths_N, batch=batch, seed=seed, rank=rank, world=world, bucket=bucket) for rank in range(world)
    ]
    steps = ranks[0].steps_per_epoch
    seen: list[int] = []
    for step in range(epoch * steps, (epoch + 1) * steps):
        parts = [batches.at(step) for batches in ranks]
        whole = ranks[0].all_at(step)
        assert np.array_equal(whole, alone.all_at(step))  # whatever the number of processes
        counted = [part for part, batches in zip(parts, ranks) if np.isfinite(batches.divisor(step, 1.0))]
        assert np.array_equal(np.concatenate(counted), whole)
        for part, batches in zip(counted, ranks):
            assert whole[batches.first_row(step)] == part[0]
        # The mean over processes of their sums, each over its divisor, is the sum of all over their total.
        shares = [len(part) / batches.divisor(step, len(whole)) for part, batches in zip(parts, ranks)]
        assert np.mean(shares) == pytest.approx(1)
        assert all(len(part) for part in parts)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert len(whole) == batch or (len(whole) < batch and step == (epoch + 1) * steps - 1)
        seen += whole.tolist()
    assert sorted(seen) == list(range(len(lengths_N)))


@given(lengths, st.integers(0, 1000), st.permutations(range(12)))
def test_the_order_of_asking_changes_nothing(lengths_N: list[int], seed: int, steps: list[int]) -> None:
    asked = RaggedBatches(lengths_N, batch=4, seed=seed)
    found = {step: asked.all_at(step) for step in steps}
    for step in range(12):
        assert np.array_equal(found[step], RaggedBatches(lengths_N, batch=4, seed=seed).all_at(step))


def test_epochs_and_seeds_differ() -> None:
    lengths_N = np.arange(1000) % 37

    def epoch(seed: int, number: int) -> list[int]:
        batches = RaggedBatches(lengths_N, batch=10, seed=seed)
        steps = range(number * batches.steps_per_epoch, (number + 1) * batches.steps_per_epoch)
        return [int(i) for step in steps for i in batches.all_at(step)]

    assert len({tuple(epoch(seed, number)) for seed in (0, 1) for number in (0, 1)}) == 4


def test_batches_are_alike_in_length_and_not_in_order_of_it() -> None:
    lengths_N = np.random.default_rng(0).integers(1, 100, 5000)
    sorted_ = RaggedBatches(lengths_N, batch=20, bucket=50)
    chance = RaggedBatches(lengths_N, batch=20, bucket=1)

    def padding(batches: RaggedBatches) -> float:
        read = [lengths_N[batches.all_at(step)] for step in range(batches.steps_per_epoch)]
        return float(np.mean([1 - part.mean() / part.max() for part in read]))

    assert padding(sorted_) < 0.05
    assert padding(chance) > 0.3
    means = [lengths_N[sorted_.all_at(step)].mean() for step in range(250)]
    assert abs(np.corrcoef(means, np.arange(250))[0, 1]) < 0.2


def test_millions_are_quick_and_steps_of_an_epoch_are_free() -> None:
    batches = RaggedBatches(np.arange(2_000_000) % 301, batch=64)
    batches.at(0)
    start = time.perf_counter()
    for step in range(2000):
        batches.at(step)
    assert time.perf_counter() - start < 1  # about ten milliseconds; an epoch's sort takes a second each


def test_mistakes_are_refused() -> None:
    with pytest.raises(UserError, match="no examples"):
        RaggedBatches([], batch=2)
    with pytest.raises(UserError, match="batch 3 cannot be shared by 4 processes"):
        RaggedBatches([1, 2], batch=3, world=4)


@given(lengths, st.integers(1, 9))
def test_evaluation_reads_each_once_by_length(lengths_N: list[int], batch: int) -> None:
    read = list(evaluation_batches(lengths_N, batch=batch))
    order = np.concatenate(read)
    assert sorted(order.tolist()) == list(range(len(lengths_N)))
    assert np.all(np.diff(np.array(lengths_N)[order]) >= 0)
    assert {len(part) for part in read[:-1]} <= {batch}


@given(st.lists(st.lists(st.integers(-9, 9), max_size=6), max_size=6), st.integers(-1, 5))
def test_pad_is_torchs(sequences: list[list[int]], value: int) -> None:
    tokens_BT, lengths_B = pad(sequences, value=value)
    assert tokens_BT.dtype == lengths_B.dtype == torch.int64
    assert lengths_B.tolist() == [len(row) for row in sequences]
    if sequences:
        rows = [torch.tensor(row, dtype=torch.int64) for row in sequences]
        assert torch.equal(tokens_BT, torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value))

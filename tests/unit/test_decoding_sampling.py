"""Each filter against its definition in NumPy; the draw against its distribution."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.utils._python_dispatch import TorchDispatchMode

from statewise.decoding import Sampling, choose
from statewise.decoding.sampling import (
    by_row,
    draw,
    filtered,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise,
    penalised,
    uniforms,
)
from statewise.runtime import STREAM, random_bits
from statewise.specs import UserError

LOGITS = arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 12)), elements=st.floats(-20, 20, width=32))


CPU = torch.device("cpu")


def kept(logits_BV: torch.Tensor) -> list[set[int]]:
    return [set(np.flatnonzero(np.isfinite(row))) for row in logits_BV.numpy()]


def softmax(row: np.ndarray) -> np.ndarray:
    weights = np.exp(row.astype(np.float64) - row.max())
    return weights / weights.sum()


@given(logits=LOGITS, k=st.integers(1, 15))
def test_top_k_keeps_exactly_k_and_the_largest(logits: np.ndarray, k: int) -> None:
    result_BV = keep_top_k(torch.from_numpy(logits), k)
    for row, found, result in zip(logits, kept(result_BV), result_BV.numpy(), strict=True):
        assert len(found) == min(k, len(row))
        assert sorted(row[list(found)]) == sorted(row)[-min(k, len(row)) :]
        assert all(result[i] == row[i] for i in found)


@given(logits=LOGITS, p=st.floats(0.01, 1))
def test_top_p_is_the_smallest_set_that_reaches_p(logits: np.ndarray, p: float) -> None:
    for row in logits:
        # Where a sum is p but for rounding, either answer is right.
        assume(np.all(np.abs(np.cumsum(np.sort(softmax(row))[::-1])[:-1] - p) > 1e-12))
    for row, found in zip(logits, kept(keep_top_p(torch.from_numpy(logits), p)), strict=True):
        probability = softmax(row)
        inside = np.array(sorted(found))
        outside = np.setdiff1d(np.arange(len(row)), inside)
        mass = probability[inside].sum()
        assert mass >= p - 1e-12
        assert mass - probability[inside].min() < p + 1e-12  # one fewer would not do
        assert len(outside) == 0 or row[outside].max() <= row[inside].min()


def test_top_p_of_one_keeps_everything() -> None:
    logits_BV = torch.randn(1, 50_000, generator=torch.Generator().manual_seed(0)) * 3
    assert torch.isfinite(keep_top_p(logits_BV, 1.0)).all()


@given(logits=LOGITS, share=st.floats(0, 1))
def test_min_p_keeps_what_is_likely_enough(logits: np.ndarray, share: float) -> None:
    for row, found in zip(logits, kept(keep_min_p(torch.from_numpy(logits), share)), strict=True):
        probability = softmax(row)
        ratio = probability / probability.max()
        assert found >= set(np.flatnonzero(ratio > share + 1e-5))
        assert found <= set(np.flatnonzero(ratio > share - 1e-5))
        assert int(row.argmax()) in found


@given(logits=LOGITS, penalty=st.floats(0.5, 3), data=st.data())
def test_repetition_pushes_only_what_was_seen(logits: np.ndarray, penalty: float, data: st.DataObject) -> None:
    seen = data.draw(arrays(np.bool_, logits.shape))
    found = penalise(torch.from_numpy(logits), torch.from_numpy(seen), penalty).numpy()
    pushed = np.where(logits > 0, logits / np.float32(penalty), logits * np.float32(penalty))
    np.testing.assert_allclose(found, np.where(seen, pushed, logits), rtol=1e-6)


def one(logits: list[float], sampling: Sampling, *, position: int = 0) -> int:
    logits_BV = torch.tensor([logits])
    seen_BV = torch.zeros(1, len(logits), dtype=torch.bool)
    return int(choose(logits_BV, seen_BV=seen_BV, position_B=torch.tensor([position]), sampling=sampling))


@given(logits=LOGITS, seed=st.integers(0, 2**63 - 1))
def test_temperature_zero_is_argmax(logits: np.ndarray, seed: int) -> None:
    logits_BV = torch.from_numpy(logits)
    token_B = choose(
        logits_BV,
        seen_BV=torch.zeros(logits.shape, dtype=torch.bool),
        position_B=torch.arange(len(logits)),
        sampling=Sampling(temperature=0, seed=seed),
    )
    assert token_B.tolist() == logits.argmax(-1).tolist()


@given(logits=LOGITS, k=st.integers(1, 5), p=st.floats(0.01, 1), share=st.floats(0, 1))
def test_no_filter_changes_what_is_greedy(logits: np.ndarray, k: int, p: float, share: float) -> None:
    for row in logits:
        assume(np.count_nonzero(row == row.max()) == 1)
    sampling = Sampling(temperature=0, top_k=k, top_p=p, min_p=share)
    arguments = {"seen_BV": torch.zeros(logits.shape, dtype=torch.bool), "position_B": torch.arange(len(logits))}
    token_B = choose(torch.from_numpy(logits), **arguments, sampling=sampling)
    ways = by_row([sampling] * len(logits), vocab=logits.shape[1], device=CPU)
    assert token_B.tolist() == filtered(torch.from_numpy(logits), ways).argmax(-1).tolist()


class Ops(TorchDispatchMode):
    """Writes down what PyTorch is asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # as torch has it
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_greedy_does_not_pay_for_a_distribution() -> None:
    arguments = {"seen_BV": torch.zeros(2, 9, dtype=torch.bool), "position_B": torch.arange(2)}
    with Ops() as ops:
        choose(torch.randn(2, 9), **arguments, sampling=Sampling(temperature=0, top_k=3, top_p=0.9, min_p=0.1))
    assert ops.names[-1:] == ["argmax"]
    assert not {"softmax", "_softmax", "cumsum", "sort", "topk"} & set(ops.names)


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-40, 5e-324])
def test_any_small_temperature_is_nearly_greedy(temperature: float) -> None:
    assert one([1.0, 80.0, 79.0, -5.0], Sampling(temperature=temperature)) == 1


@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
def test_frequencies_are_the_probabilities(temperature: float) -> None:
    logits, draws = np.array([0.0, 1.0, -1.0, 2.0, -3.0], dtype=np.float32), 6000
    logits_BV = torch.from_numpy(np.tile(logits, (draws, 1)))
    token_B = choose(
        logits_BV,
        seen_BV=torch.zeros(logits_BV.shape, dtype=torch.bool),
        position_B=torch.arange(draws),
        sampling=Sampling(temperature=temperature, seed=11),
    )
    counts = np.bincount(token_B.numpy(), minlength=5)
    expected = draws * softmax(logits / temperature)
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 18.5  # four degrees of freedom: exceeded once in a thousand, and the seed is fixed


def test_filters_hold_when_drawing() -> None:
    logits_BV = torch.randn(1, 40, generator=torch.Generator().manual_seed(1)).expand(500, 40)
    arguments = {"seen_BV": torch.zeros(500, 40, dtype=torch.bool), "position_B": torch.arange(500)}
    allowed = set(logits_BV[0].topk(3).indices.tolist())
    drawn = set(choose(logits_BV, **arguments, sampling=Sampling(top_k=3, temperature=2.0)).tolist())
    assert drawn == allowed


def test_the_draw_does_not_depend_on_the_others_in_the_batch() -> None:
    generator = torch.Generator().manual_seed(2)
    logits_BV, seen_BV = torch.randn(6, 30, generator=generator), torch.rand(6, 30, generator=generator) < 0.3
    position_B = torch.tensor([5, 0, 3, 900, 4, 5])
    sampling = Sampling(repetition=1.3, temperature=1.2, top_k=20, top_p=0.95, min_p=0.01, seed=8)
    together = choose(logits_BV, seen_BV=seen_BV, position_B=position_B, sampling=sampling)
    for i in range(6):
        row = slice(i, i + 1)
        alone = choose(logits_BV[row], seen_BV=seen_BV[row], position_B=position_B[row], sampling=sampling)
        assert int(alone) == int(together[i])


def test_the_draw_depends_on_seed_and_position() -> None:
    flat = [0.0] * 100_000
    assert len({one(flat, Sampling(seed=seed), position=p) for seed in range(5) for p in range(5)}) == 25
    assert one(flat, Sampling(seed=3), position=4) == one(flat, Sampling(seed=3), position=4)


def test_filters_apply_in_order() -> None:
    """The penalty comes first: it decides who is among the top k."""
    logits_BV, seen_BV = torch.tensor([[4.0, 3.0, 1.0]]), torch.tensor([[True, False, False]])
    ways = by_row([Sampling(repetition=4.0, top_k=1)], vocab=3, device=CPU)
    assert kept(filtered(penalised(logits_BV, seen_BV, None, ways), ways)) == [{1}]


WAYS = [
    Sampling(seed=1),
    Sampling(temperature=0),
    Sampling(repetition=1.4, temperature=0.7, seed=2),
    Sampling(top_k=3, seed=3),
    Sampling(top_p=0.6, seed=4),
    Sampling(min_p=0.2, temperature=1.5, seed=5),
    Sampling(presence=1.5, frequency=-0.4, seed=6),
    Sampling(bias=((3, 8.0), (5, -100.0)), temperature=0.0),
    Sampling(1.2, 0.9, 7, 0.95, 0.01, 7, 0.3, 0.2, ((1, 2.0),)),
]


def test_rows_with_ways_of_their_own_draw_what_they_draw_alone() -> None:
    generator = torch.Generator().manual_seed(3)
    for turn in range(50):
        logits_BV = 3 * torch.randn(len(WAYS), 11, generator=generator)
        count_BV = torch.randint(3, (len(WAYS), 11), generator=generator, dtype=torch.int32)
        position_B = torch.randint(1000, (len(WAYS),), generator=generator)
        ways = by_row(WAYS, vocab=11, device=CPU)
        below_B1 = uniforms(ways.seed_B, position_B)[:, None]
        together = draw(logits_BV, ways, below_B1=below_B1, seen_BV=count_BV > 0, count_BV=count_BV)
        for i, sampling in enumerate(WAYS):
            row = slice(i, i + 1)
            alone = choose(
                logits_BV[row],
                seen_BV=count_BV[row] > 0,
                count_BV=count_BV[row],
                position_B=position_B[row],
                sampling=sampling,
            )
            assert int(alone) == int(together[i]), (turn, sampling)


def test_penalties_and_bias_change_logits_as_defined() -> None:
    logits_BV, count_BV = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0, 1, 4]])
    ways = by_row([Sampling(presence=0.5, frequency=0.25, bias=((0, -1.0),))], vocab=3, device=CPU)
    found = penalised(logits_BV, count_BV > 0, count_BV, ways)
    assert found.tolist() == [[0.0, 2.0 - 0.5 - 0.25, 3.0 - 0.5 - 1.0]]


@given(seed=st.integers(0, 2**63 - 1), position=st.integers(0, 5 * STREAM))
def test_random_bits_are_splitmix(seed: int, position: int) -> None:
    def mixed(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    golden = 0x9E3779B97F4A7C15
    state = mixed((seed + position // STREAM + 1) * golden % 2**64) + (position % STREAM + 1) * golden
    expected = mixed(state % 2**64) >> 11
    assert random_bits(np.array([seed]), np.array([position])).tolist() == [expected]
    assert random_bits(torch.tensor([seed]), torch.tensor([position])).tolist() == [expected]
    assert uniforms(torch.tensor([seed]), torch.tensor([position])).tolist() == [expected / 2**53]


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "repetition": (0, -1, math.nan, math.inf),
        "temperature": (-0.1, math.nan, math.inf),
        "top_k": (0, -3),
        "top_p": (0, -0.5, 1.5, math.nan),
        "min_p": (-0.1, 1.1, math.nan),
        "seed": (-1, 2**63),
        "presence": (math.nan, math.inf),
        "frequency": (math.nan, -math.inf),
        "bias": (((-1, 1.0),), ((1, math.nan),)),
    }.items(),
)
def test_what_cannot_be_is_refused(name: str, values: tuple[float, ...]) -> None:
    for value in values:
        with pytest.raises(UserError, match=f"^{name} = "):
            Sampling(**{name: value}).check()


def test_what_can_be_is_not_refused() -> None:
    sampling = Sampling(repetition=1.2, temperature=0, top_k=1, top_p=1, min_p=0, seed=2**63 - 1)
    assert sampling.check() is sampling

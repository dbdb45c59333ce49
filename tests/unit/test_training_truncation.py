"""Truncation: cuts tile the window, keep their promise in the mean, and never change a value."""

import itertools
import weakref
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_task import TokenTask, distance, gradients, spec, tiny, trainer
from torch.nn import functional as F

from statewise.core import leaves
from statewise.specs import (
    FixedTruncation,
    FullTruncation,
    RandomTruncation,
    TruncationSpec,
    UnbiasedTruncation,
)
from statewise.training import Segment, pass_gradient, segments

POLICIES = st.one_of(
    st.just(FullTruncation()),
    st.builds(FixedTruncation, length=st.integers(1, 40)),
    st.builds(RandomTruncation, length=st.integers(1, 40)),
    st.builds(UnbiasedTruncation, length=st.integers(1, 40), keep=st.floats(0.05, 1)),
)
KEEP = 0.4
TIME = 12


@given(policy=POLICIES, time=st.integers(1, 100), seed=st.integers(0, 2**63 - 1), step=st.integers(1, 10**9))
def test_segments_tile_the_window(policy: TruncationSpec, time: int, seed: int, step: int) -> None:
    cuts = segments(policy, time, key=(seed, step))
    assert [t for cut in cuts for t in range(cut.start, cut.stop)] == list(range(time))
    assert all(cut.start < cut.stop for cut in cuts)
    assert cuts[0].flow == 0.0
    assert cuts == segments(policy, time, key=(seed, step))


def test_fixed_cuts_where_it_says() -> None:
    assert segments(FixedTruncation(length=5), 12, key=(0, 1)) == [(0, 5, 0.0), (5, 10, 0.0), (10, 12, 0.0)]


def test_random_lengths_have_the_right_mean_and_range() -> None:
    length, time = 6, 60_000
    cuts = segments(RandomTruncation(length=length), time, key=(0, 1))
    lengths = torch.tensor([cut.stop - cut.start for cut in cuts[:-1]], dtype=torch.float64)
    # Uniform on 1 … 11: variance 10; four standard errors.
    assert abs(float(lengths.mean()) - length) < 4 * (10 / len(lengths)) ** 0.5
    assert set(lengths.tolist()) == set(range(1, 2 * length))


@pytest.mark.parametrize("policy", [RandomTruncation(length=4), UnbiasedTruncation(length=4, keep=0.5)])
def test_chance_is_a_function_of_the_key(policy: TruncationSpec) -> None:
    found = {key: tuple(segments(policy, 64, key=key)) for key in itertools.product(range(3), range(3))}
    assert len(set(found.values())) == len(found)


def test_unbiased_passes_gradient_as_often_as_it_says() -> None:
    policy = UnbiasedTruncation(length=3, keep=KEEP)
    flows = Counter(cut.flow for step in range(4000) for cut in segments(policy, TIME, key=(7, step))[1:])
    assert set(flows) == {0.0, 1 / KEEP}
    share = flows[1 / KEEP] / flows.total()
    assert abs(share - KEEP) < 4 * (KEEP * (1 - KEEP) / flows.total()) ** 0.5


def gradient_under(kind: str, cuts: list[Segment]) -> tuple[dict[str, torch.Tensor], float]:
    model, task = tiny(kind), TokenTask(time=TIME)
    window = task.window(1)
    loss = float(trainer(model, task, spec()).updater.backward(window, cuts)) / window.weight
    return gradients(model), loss


@pytest.mark.parametrize("kind", ["elman", "gru", "lstm"])
def test_unbiased_is_full_bptt_in_the_mean(kind: str) -> None:
    """Over all 2^n patterns of cuts, weighted by their probability: an identity, not an estimate."""
    full, _ = gradient_under(kind, [Segment(0, TIME, 0.0)])
    starts = range(0, TIME, 3)
    mean = {name: torch.zeros_like(value) for name, value in full.items()}
    for kept in itertools.product([False, True], repeat=len(starts) - 1):
        flows = [0.0, *(1 / KEEP if passes else 0.0 for passes in kept)]
        weight = KEEP ** sum(kept) * (1 - KEEP) ** (len(kept) - sum(kept))
        found, _ = gradient_under(kind, [Segment(s, s + 3, flow) for s, flow in zip(starts, flows, strict=True)])
        for name in mean:
            mean[name] += weight * found[name]
    assert distance(full, mean) < 1e-12
    fixed, _ = gradient_under(kind, segments(FixedTruncation(length=3), TIME, key=(0, 1)))
    assert distance(full, fixed) > 1e-3


@pytest.mark.parametrize("kind", ["elman", "gru", "lstm"])
def test_full_is_one_plain_backward(kind: str) -> None:
    found, loss = gradient_under(kind, segments(FullTruncation(), TIME, key=(0, 1)))
    model, task = tiny(kind), TokenTask(time=TIME)
    tokens = task.tokens(1)
    logits_BTV, _ = model(tokens[:, :-1], trainer(model, task, spec()).updater.state)
    plain = F.cross_entropy(logits_BTV.flatten(0, 1), tokens[:, 1:].flatten())
    plain.backward()
    assert distance(gradients(model), found) < 1e-12
    assert loss == pytest.approx(plain.item(), rel=1e-12)


def test_no_policy_changes_the_loss_or_the_state() -> None:
    def forward(policy: TruncationSpec) -> tuple[float, torch.Tensor]:
        model, task = tiny(), TokenTask(time=TIME)
        made = trainer(model, task, spec())
        loss = float(made.updater.backward(task.window(1), segments(policy, TIME, key=(0, 1))))
        return loss, torch.cat([leaf for _, leaf in leaves(made.updater.state)], dim=1)

    loss, state = forward(FullTruncation())
    for policy in (FixedTruncation(length=5), RandomTruncation(length=3), UnbiasedTruncation(length=2, keep=0.3)):
        other_loss, other_state = forward(policy)
        assert other_loss == pytest.approx(loss, rel=1e-13)
        assert not other_state.requires_grad
        torch.testing.assert_close(other_state, state, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("flow", "expected"), [(0.0, None), (1.0, 3.0), (2.5, 7.5)])
def test_flow_scales_what_passes_and_zero_cuts(flow: float, expected: float | None) -> None:
    early = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    count = torch.arange(2)  # whole numbers in a state (positions) have no gradient and pass unchanged
    (late, same_count) = pass_gradient((early * 1, count), flow)
    assert torch.equal(late, early)
    assert torch.equal(same_count, count)
    if expected is None:
        assert late.grad_fn is None
        return
    (late * 3).sum().backward()
    assert early.grad is not None
    assert torch.equal(early.grad, torch.full_like(early, expected))


def test_a_cut_frees_the_graph_before_it() -> None:
    def peak(cuts: list[Segment]) -> int:
        """The most tensors that autograd held at once."""
        alive, most = 0, 0

        def pack(tensor: torch.Tensor) -> Any:
            nonlocal alive, most
            held = Held(tensor)
            alive += 1
            most = max(most, alive)
            weakref.finalize(held, gone)
            return held

        def gone() -> None:
            nonlocal alive
            alive -= 1

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held.tensor):
            model, task = tiny(kernel="naive"), TokenTask(time=TIME)
            trainer(model, task, spec()).updater.backward(task.window(1), cuts)
        return most

    full = peak([Segment(0, TIME, 0.0)])
    cut = peak(segments(FixedTruncation(length=2), TIME, key=(0, 1)))
    assert cut < full / 3


class Held:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

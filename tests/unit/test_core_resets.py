"""`forward_with_resets` against the obvious slow loop: one moment at a time, resetting rows on the way."""

from typing import Any

import pytest
import torch
from covering import covered
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from statewise.core import Machine, forward_with_resets, leaves, map_state, reset_rows
from statewise.core.laws import evaluate, make_case
from statewise.mixers import LSTM
from statewise.models import LINEAGE, build_sample

MACHINES: dict[str, Machine[Any]] = {row.name: build_sample(row.spec.small(), vocab=7).double() for row in LINEAGE}
MACHINES["lstm-mixer"] = LSTM(6, input_width=3, generator=torch.Generator().manual_seed(0)).double()


def slow(machine: Machine[Any], x: Tensor, state: Any, resets_BT: Tensor, initial: Any) -> tuple[Tensor, Any]:
    outputs = []
    for t in range(x.shape[1]):
        state = reset_rows(state, resets_BT[:, t], initial=initial)
        y, state = machine.step(x[:, t], state)
        outputs.append(y)
    return torch.stack(outputs, dim=1), state


def compare(machine: Machine[Any], resets_BT: Tensor, *, seed: int = 0) -> None:
    """Outputs, final state, and gradients by inputs, carried state and weights."""
    case = make_case(machine, batch=resets_BT.shape[0], time=resets_BT.shape[1], seed=seed)
    # A learned start would not be zero; nor is this one, so that zeros cannot stand in for it.
    generator = torch.Generator().manual_seed(seed + 2)

    def shake(leaf: Tensor) -> Tensor:
        return leaf + 0.25 * torch.randn(leaf.shape, dtype=leaf.dtype, generator=generator)

    initial = map_state(lambda leaf: shake(leaf) if leaf.is_floating_point() else leaf, machine.init_state(1))
    kept = resets_BT.clone()
    # What grows is padded differently in the two, so it is judged by what follows from it alone.
    grows = any(leaf.numel() == 0 for _, leaf in leaves(machine.init_state(1)))
    later = machine.sample_input(len(resets_BT), 2, generator=torch.Generator().manual_seed(seed + 1))

    def judged(y: Tensor, after: Any) -> tuple[Tensor, Any]:
        more, _ = machine(later, after)
        return torch.cat([y, more], dim=1), () if grows else after

    got = evaluate(
        machine, case, lambda c: judged(*forward_with_resets(machine, c.x, c.state, resets_BT, initial=initial))
    )
    expected = evaluate(machine, case, lambda c: judged(*slow(machine, c.x, c.state, resets_BT, initial)))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    assert torch.equal(resets_BT, kept), "the mask is only read"


B, T = 3, 6
MASKS = {
    "none": torch.zeros(B, T, dtype=torch.bool),
    "everywhere": torch.ones(B, T, dtype=torch.bool),
    "first": torch.arange(T).eq(0).expand(B, T).clone(),
    "last": torch.arange(T).eq(T - 1).expand(B, T).clone(),
    "first of one row": torch.zeros(B, T, dtype=torch.bool).index_put(
        (torch.tensor(1), torch.tensor(0)), torch.tensor(True)
    ),
    "mixed": torch.tensor([[0, 0, 1, 0, 0, 1], [1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]], dtype=torch.bool),
}


@covered("machine, resets_BT", MACHINES, MASKS, strength=1)
def test_the_same_as_stepping(machine: Machine[Any], resets_BT: Tensor) -> None:
    compare(machine, resets_BT)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())
@settings(deadline=None, max_examples=15)
@given(data=st.data(), batch=st.integers(1, 4), time=st.integers(1, 8), seed=st.integers(0, 2**31))
def test_any_mask(machine: Machine[Any], data: st.DataObject, batch: int, time: int, seed: int) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=batch * time, max_size=batch * time), label="resets")
    compare(machine, torch.tensor(flags).view(batch, time), seed=seed)


def test_without_resets_it_is_forward() -> None:
    machine = MACHINES["lstm"]
    case = make_case(machine)
    none_BT = torch.zeros(case.batch, case.time, dtype=torch.bool)
    y, after = forward_with_resets(machine, case.x, case.state, none_BT, initial=machine.init_state(1))
    y_plain, after_plain = machine(case.x, case.state)
    torch.testing.assert_close(y, y_plain, rtol=0, atol=1e-12)
    for (_, a), (_, b) in zip(leaves(after), leaves(after_plain), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_a_reset_at_the_start_cuts_the_carried_state_off() -> None:
    """Nothing of what was before is felt, forwards or backwards, by the rows that were reset."""
    machine = MACHINES["gru"]
    case = make_case(machine)
    state = map_state(lambda leaf: leaf.clone().requires_grad_(), case.state)
    resets_BT = torch.zeros(case.batch, case.time, dtype=torch.bool)
    resets_BT[1, 0] = True
    y, _ = forward_with_resets(machine, case.x, state, resets_BT, initial=machine.init_state(1))
    y.sum().backward()
    for _, leaf in leaves(state):
        assert (leaf.grad[1] == 0).all()
        assert (leaf.grad[0] != 0).any()
    alone, _ = machine(case.x[1:2])
    torch.testing.assert_close(y[1:2], alone, rtol=0, atol=1e-12)

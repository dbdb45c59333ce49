"""The three forms that a machine may do faster, against the ones they stand for, for everything the lineage lists."""

import torch
from listed import LISTED, Listed, each

from statewise.core import fork, laws, leaves, unroll
from statewise.kernels.attention import with_room


def flat(state: object) -> list[torch.Tensor]:
    return [leaf for _, leaf in leaves(state)]  # a state, of whatever type


@each(LISTED)
@torch.no_grad()
def test_steps_in_room_equal_pure_steps(machine: Listed) -> None:
    """From rows of different lengths; and no state on the way is changed by those after it."""
    made = machine()
    case = laws.make_case(made)
    kept = fork(case.state)
    expected, after = unroll(made.step, case.x, case.state)
    state, room = made.reserve(case.state, case.time + 1)
    assert room == case.time + 1
    outputs, states = [], []
    for x in case.x.unbind(1):
        y, state = made.step_(x, state)
        outputs.append(y)
        states.append(state)
    assert laws.distance([torch.stack(outputs, dim=1)], [expected]) <= 1e-10
    assert laws.distance(flat(case.state), flat(kept)) == 0, "the state that was given is as it was"
    # A state that grows is padded differently, so states are judged by what follows from them.
    later = made.sample_input(case.batch, 2, generator=torch.Generator().manual_seed(5))
    assert laws.distance([made(later, state)[0]], [made(later, after)[0]]) <= 1e-10
    half = case.time // 2
    _, between = made(case.x[:, :half], case.state)
    assert laws.distance([made(later, states[half - 1])[0]], [made(later, between)[0]]) <= 1e-10


@torch.no_grad()
def test_free_slots_hold_nothing_that_a_mask_could_not_hide() -> None:
    """Memory is handed out as the one before left it: here, full of NaN."""
    for _ in range(20):
        torch.full((3, 2, 40, 6), torch.nan, dtype=torch.float64)
        room_BSGK = with_room(torch.ones(3, 4, 2, 6, dtype=torch.float64), 40)
        assert room_BSGK[:, :4].eq(1).all()
        assert room_BSGK[:, 4:].eq(0).all()


@each(LISTED)
@torch.no_grad()
def test_absorbing_leaves_the_state_that_reading_leaves(machine: Listed) -> None:
    made = machine()
    case = laws.make_case(made)
    lengths_B = torch.tensor([case.time, 2, 0])
    for lengths in (None, lengths_B):
        _, state = made(case.x, case.state, lengths)
        assert laws.distance(flat(made.absorb(case.x, case.state, lengths)), flat(state)) == 0

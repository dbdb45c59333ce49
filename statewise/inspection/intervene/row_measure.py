"""What becomes of answers when something is touched while a row is read.

P rows and moments, N acts side by side, T places, Q questions, K classes or channels.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from statewise.core import Machine, State, concat, lens
from statewise.inspection.intervene.address import Address, put
from statewise.inspection.intervene.effect import touched
from statewise.inspection.intervene.measure import Deed
from statewise.tasks import Specimen

_AT_ONCE = 32  # acts that are read on side by side
_SHARES = (0.25, 0.5, 0.75)  # of a row that is read before the act


class RowCut(NamedTuple):
    """A row that was read up to a moment, and the questions that are answered after it."""

    one: Specimen
    at: int
    state: State
    read_1TC: Tensor  # what reading gave so far
    asked: tuple[int, ...]
    gap_Q: Tensor  # places between the act and each of these answers, the last one counted


class Effect(NamedTuple):
    """Of one act, over the questions of one cut."""

    added_Q: Tensor
    moved_Q: Tensor  # of classes: the probability that went elsewhere; of numbers: how far they moved
    flipped_Q: Tensor  # whether another class is now the likeliest


@torch.no_grad()
def row_cuts(one: Specimen, machine: Machine[Any]) -> list[RowCut]:
    """A few moments of a row that have a question after them; the first, where something was read before it."""
    last_Q = [_last_place(one.distance(query)) for query in range(len(one.questions))]
    z_1TI = one.enter(one.x_TE[None])
    length = len(one) - one.first
    moments = {min(max(round(share * length), 1), length - 1) for share in _SHARES if length > 1}
    begun, found = one.begun(z_1TI), []
    for at in sorted(one.first + moment for moment in (moments if one.begin is None else {0, *moments})):
        asked = tuple(query for query, last in enumerate(last_Q) if last >= at)
        if asked:
            y_1TC, state = machine(z_1TI[:, one.first : max(at, one.first + 1)], begun)
            if at == one.first:
                y_1TC, state = y_1TC[:, :0], begun
            gap_Q = torch.tensor([last_Q[query] - at + 1 for query in asked])
            found.append(RowCut(one, at, state, y_1TC, asked, gap_Q))
    return found


def _last_place(distance_T: Any) -> int:
    """The place just before the answer."""
    before = np.flatnonzero(np.nan_to_num(distance_T, nan=-1.0) >= 0)
    return int(before[np.argmin(distance_T[before])]) if len(before) else -1


@torch.no_grad()
def after(cut: RowCut, machine: Machine[Any], deeds: Sequence[Deed], other: State) -> dict[Deed, Effect]:
    """Every deed at this moment; `other` is the state that a swap brings in."""
    one = cut.one
    x_1TE = one.x_TE[None]
    z_1TI = one.enter(x_1TE)[:, cut.at :]
    base = _answered(cut, machine(z_1TI, cut.state)[0], x_1TE)
    found: dict[Deed, Effect] = {}
    at_once = [deed for deed in deeds if deed.act != "freeze"]
    for begin in range(0, len(at_once), _AT_ONCE):
        some = at_once[begin : begin + _AT_ONCE]
        states = [touched(machine, cut.state, deed.address, deed.act, other=other) for deed in some]
        # A list that grows may now be longer in one state than in another: such are read one by one.
        alike = len({tuple(leaf.shape for leaf in _leaves(state)) for state in states}) == 1
        groups = [(some, concat(states))] if alike else [([deed], state) for deed, state in zip(some, states)]
        for group, state in groups:
            count = len(group)
            y_NTC = machine(z_1TI.expand(count, -1, -1), state)[0]
            answered = _answered(cut, y_NTC, x_1TE.expand(count, -1, -1))
            found |= {deed: _effect(base, answered, row) for row, deed in enumerate(group)}
    for deed in deeds:
        if deed.act == "freeze":
            y_1TC = _held_still(machine, z_1TI, cut.state, deed.address)
            found[deed] = _effect(base, _answered(cut, y_1TC, x_1TE), 0)
    return {deed: found[deed] for deed in deeds}


@torch.no_grad()
def costs_before(cut: RowCut, machine: Machine[Any]) -> Tensor:
    """What the questions after a cut cost when nothing is touched."""
    x_1TE = cut.one.x_TE[None]
    y_1TC = machine(cut.one.enter(x_1TE)[:, cut.at :], cut.state)[0]
    return _answered(cut, y_1TC, x_1TE).cost_NQ[0]


@torch.no_grad()
def silenced_rows(one: Specimen, addresses: Sequence[Address]) -> tuple[Tensor, dict[Address, Effect]]:
    """What every question costs; and the effect of each observed name being 0 all along the row."""
    x_1TE = one.x_TE[None]
    z_1TI = one.enter(x_1TE)
    y = one.read(z_1TI)
    base = _Answered(one.judge(y, x_1TE), one.answer(y, x_1TE))
    found = {}
    for address in addresses:

        def nothing(name: str, value: Tensor, address: Address = address) -> Tensor:
            if address.axis is None:
                return torch.zeros_like(value)
            changed = value.clone()
            changed[address.part(name, value)] = 0
            return changed

        with lens(address.path, edit=nothing, keep=False):
            y = one.read(z_1TI)
        found[address] = _effect(base, _Answered(one.judge(y, x_1TE), one.answer(y, x_1TE)), 0)
    return base.cost_NQ[0], found


class _Answered(NamedTuple):
    cost_NQ: Tensor
    answer_NQK: Tensor


def _answered(cut: RowCut, y_NTC: Tensor, x_NTE: Tensor) -> _Answered:
    whole_NTC = torch.cat([cut.read_1TC.expand(len(y_NTC), -1, -1), y_NTC], dim=1)
    asked = torch.tensor(cut.asked, device=y_NTC.device)
    costs_NQ, answers_NQK = cut.one.judge(whole_NTC, x_NTE), cut.one.answer(whole_NTC, x_NTE)
    return _Answered(costs_NQ[:, asked], answers_NQK[:, asked])


def _effect(base: _Answered, now: _Answered, row: int) -> Effect:
    apart_QK = (now.answer_NQK[row] - base.answer_NQK[0]).double().cpu()
    return Effect(
        (now.cost_NQ[row] - base.cost_NQ[0]).double().cpu(),
        apart_QK.abs().sum(-1) / 2 if apart_QK.shape[-1] > 1 else apart_QK.abs().sum(-1),
        (now.answer_NQK[row].argmax(-1) != base.answer_NQK[0].argmax(-1)).double().cpu(),
    )


def _held_still(machine: Machine[Any], z_1TI: Tensor, state: State, address: Address) -> Tensor:
    moments = []
    for z_t in z_1TI.unbind(1):
        y_t, later = machine.step(z_t, state)
        state = put(later, state, address)
        moments.append(y_t)
    return torch.stack(moments, dim=1)


def _leaves(state: State) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else [leaf for part in state for leaf in _leaves(part)]

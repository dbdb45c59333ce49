"""What the recurrence itself does, at states that a row visits: for any machine and whatever it reads.

T time, P visited states, N numbers in a state.
"""

from typing import Any

import torch
from torch import Tensor

from statewise.core import Machine, State, leaves
from statewise.inspection.gradient.jacobian import Stretch, eigenvalues, size_of, stretch
from statewise.inspection.gradient.settings import GradientSettings
from statewise.inspection.progress import Progress

_VISITED = 3  # states whose Jacobian is shown
_WARM = 16  # tokens before the first of them


@torch.no_grad()
def jacobians(
    machine: Machine[Any],
    x_T: Tensor,
    settings: GradientSettings,
    progress: Progress,
    *,
    begun: "State | None" = None,
) -> tuple[list[Stretch], list[Tensor]]:
    """Stretches over more and more steps from one state, and the eigenvalues of one step at several."""
    starts = [round(one) for one in torch.linspace(min(_WARM, len(x_T) // 2), len(x_T) - 1, _VISITED).tolist()]
    states = _visited(machine, x_T, starts, machine.init_state(1) if begun is None else begun)
    found_PN = []
    if size_of(states[0]) <= settings.largest:
        for start, state in zip(progress.over(starts, "eigenvalues of the recurrence"), states):
            found_N = eigenvalues(machine, x_T[start : start + 1], state)
            if found_N is not None:
                found_PN.append(found_N)
    spans = [2**power for power in range(settings.steps.bit_length())]
    spans = [one for one in spans if one <= min(settings.steps, len(x_T) - starts[0])]
    generator = torch.Generator().manual_seed(0)
    stretches = [
        stretch(machine, x_T[starts[0] : starts[0] + k], states[0], largest=settings.largest, generator=generator)
        for k in progress.over(spans, "products of Jacobians")
    ]
    return stretches, found_PN


def _visited(machine: Machine[Any], x_T: Tensor, at: list[int], state: State) -> list[State]:
    """The states before some moments."""
    found = []
    for t, x_t in enumerate(x_T):
        if t in at:
            found.append(state)
        _, state = machine.step(x_t[None], state)
    return found


@torch.no_grad()
def kept_leaves(machine: Machine[Any], x_T: Tensor, begun: State) -> list[str]:
    """Of a state, what a step hands on as it is."""
    _, later = machine.step(x_T[:1], begun)
    both = zip(leaves(begun), leaves(later))
    return [path for (path, one), (_, other) in both if one is other and one.is_floating_point() and one.numel()]


def without_eigenvalues(machine: Machine[Any], x_T: Tensor, largest: int, *, begun: "State | None" = None) -> str:
    """Why there are none."""
    with torch.no_grad():
        one, two = (size_of(machine.absorb(x_T[None, :length], begun)) for length in (1, 2))
    if one != two:
        return "The state grows: what was written stays as it was, so no square matrix is applied again and again."
    return f"The state has {two:,} numbers, more than largest={largest:,}: its eigenvalues were left out."

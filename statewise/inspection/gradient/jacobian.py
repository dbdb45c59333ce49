"""What a state does to a later one: Jacobians of the recurrence at states that were visited, for any machine.

Rows of a batch do not feel each other (a law), so N copies of one state give N rows of the Jacobian in one backward
pass; no layer needs to be known. N, M: numbers in the state before and after.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from statewise.core import Machine, State, leaves, map_state, rows

_ROWS = 128  # of a Jacobian that are made at a time
_PROBES = 16  # random directions, where the state is too large for all of them


class Stretch(NamedTuple):
    """How much some steps stretch a small change of the state."""

    steps: int
    singular: tuple[float, ...]  # from the largest; empty: the state is too large
    rms: float  # the root mean square of all of them


def size_of(state: State) -> int:
    """Numbers of one row that gradients can flow through."""
    return sum(leaf[0].numel() for _, leaf in leaves(state) if leaf.is_floating_point())


def jacobian(machine: Machine[Any], x_T: Tensor, state: State) -> Tensor:
    """`∂ state after reading x / ∂ state before`, `[M, N]`: row by row of copies."""
    before = size_of(state)
    after = size_of(_read(machine, x_T, state))
    parts = []
    for start in range(0, after, _ROWS):
        direction_RM = torch.zeros(min(_ROWS, after - start), after, dtype=machine.like.dtype, device=x_T.device)
        direction_RM[torch.arange(len(direction_RM)), start + torch.arange(len(direction_RM))] = 1.0
        parts.append(_pulled_back(machine, x_T, state, direction_RM))
    found_MN = torch.cat(parts)
    assert found_MN.shape == (after, before)
    return found_MN


def stretch(machine: Machine[Any], x_T: Tensor, state: State, *, largest: int, generator: torch.Generator) -> Stretch:
    """Singular values of the product of the steps' Jacobians; of a large state their root mean square alone."""
    before, after = size_of(state), size_of(_read(machine, x_T, state))
    if max(before, after) <= largest:
        singular = torch.linalg.svdvals(jacobian(machine, x_T, state).double())
        mean = float(singular.square().sum() / before) ** 0.5
        return Stretch(len(x_T), tuple(singular.tolist()), mean)
    direction_RM = torch.randn(_PROBES, after, dtype=torch.float64, generator=generator).to(machine.like)
    # Of a direction u with unit variance, |uᵀJ|² is the sum of the squared singular values in the mean.
    squares_R = _pulled_back(machine, x_T, state, direction_RM).double().square().sum(1)
    return Stretch(len(x_T), (), float(squares_R.mean() / before) ** 0.5)


def eigenvalues(machine: Machine[Any], x_T: Tensor, state: State) -> Tensor | None:
    """Of the Jacobian, complex; None where the state grows: what was in it stays, and there is no square matrix."""
    if size_of(state) != size_of(_read(machine, x_T, state)):
        return None
    found_N: Tensor = torch.linalg.eigvals(jacobian(machine, x_T, state).double())
    return found_N


def _read(machine: Machine[Any], x_T: Tensor, state: State) -> State:
    for x_t in x_T:
        _, state = machine.step(x_t[None].expand(len(next(leaves(state))[1]), *x_t.shape), state)
    return state


def _pulled_back(machine: Machine[Any], x_T: Tensor, state: State, direction_RM: Tensor) -> Tensor:
    """`uᵀJ` for each row u."""
    copies = rows(state, torch.zeros(len(direction_RM), dtype=torch.long, device=x_T.device))
    with torch.enable_grad():
        start = map_state(
            lambda leaf: leaf.detach().clone().requires_grad_() if leaf.is_floating_point() else leaf, copies
        )
        end_RM = _flat(_read(machine, x_T, start))
        wanted = [leaf for _, leaf in leaves(start) if leaf.is_floating_point()]
        found = torch.autograd.grad((end_RM * direction_RM).sum(), wanted, allow_unused=True)
    shaped = [torch.zeros_like(leaf) if one is None else one for one, leaf in zip(found, wanted)]
    return torch.cat([one.flatten(1) for one in shaped], dim=1)


def _flat(state: State) -> Tensor:
    return torch.cat([leaf.flatten(1) for _, leaf in leaves(state) if leaf.is_floating_point()], dim=1)

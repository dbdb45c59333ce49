"""Jacobians of the recurrence at states that were visited, for any machine: singular values and eigenvalues.

Rows of a batch are independent (a law), so N copies of one state give N rows of the Jacobian in one backward pass, and
no layer needs to be known. N, M: numbers in the state before and after; T time steps, P visited states.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from statewise.core import Machine, State, leaves, map_state, rows
from statewise.display import Progress, plain, rough
from statewise.figures import Axis, Figure, Series

_ROWS = 128  # of a Jacobian that are computed at a time
_PROBES = 16  # random directions, where the state is too large for all of them
_VISITED = 3  # states whose Jacobian is computed
_WARM = 16  # tokens before the first of them
_NOISE = 1e-14  # of the largest singular value: below it double precision has only rounding errors


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
    jacobian_MN = torch.cat(parts)
    assert jacobian_MN.shape == (after, before)
    return jacobian_MN


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
    values_N: Tensor = torch.linalg.eigvals(jacobian(machine, x_T, state).double())
    return values_N


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
        gradients = torch.autograd.grad((end_RM * direction_RM).sum(), wanted, allow_unused=True)
    shaped = [torch.zeros_like(leaf) if gradient is None else gradient for gradient, leaf in zip(gradients, wanted)]
    return torch.cat([part.flatten(1) for part in shaped], dim=1)


def _flat(state: State) -> Tensor:
    return torch.cat([leaf.flatten(1) for _, leaf in leaves(state) if leaf.is_floating_point()], dim=1)


class Recurrence(NamedTuple):
    """What the recurrence does to a small change of the state."""

    stretches: Sequence[Stretch] = ()  # over more and more steps from one state
    eigenvalues_PN: Sequence[Tensor] = ()  # of one step, at several states

    def data(self) -> dict[str, Any]:
        return {
            "jacobian": [
                {
                    "steps": stretch.steps,
                    "rms": stretch.rms,
                    "largest": stretch.singular[0] if stretch.singular else None,
                }
                for stretch in self.stretches
            ],
            "spectral_radius": [float(values_N.abs().max()) for values_N in self.eigenvalues_PN],
        }


@torch.no_grad()
def recurrence(
    machine: Machine[Any], x_T: Tensor, progress: Progress, *, largest: int, steps: int, state: "State | None" = None
) -> Recurrence:
    """Along a row from `state`, by default the initial one; `largest`: the largest state whose Jacobian is computed."""
    starts = [round(at) for at in torch.linspace(min(_WARM, len(x_T) // 2), len(x_T) - 1, _VISITED).tolist()]
    states = _visited(machine, x_T, starts, machine.init_state(1) if state is None else state)
    eigenvalues_PN = []
    if size_of(states[0]) <= largest:
        for start, state in zip(progress.over(starts, "eigenvalues of the recurrence"), states):
            values_N = eigenvalues(machine, x_T[start : start + 1], state)
            if values_N is not None:
                eigenvalues_PN.append(values_N)
    spans = [2**power for power in range(steps.bit_length())]
    spans = [span for span in spans if span <= min(steps, len(x_T) - starts[0])]
    generator = torch.Generator().manual_seed(0)
    stretches = [
        stretch(machine, x_T[starts[0] : starts[0] + span], states[0], largest=largest, generator=generator)
        for span in progress.over(spans, "products of Jacobians")
    ]
    return Recurrence(stretches, eigenvalues_PN)


def _visited(machine: Machine[Any], x_T: Tensor, at: list[int], state: State) -> list[State]:
    """The states before some time steps."""
    states = []
    for t, x_t in enumerate(x_T):
        if t in at:
            states.append(state)
        _, state = machine.step(x_t[None], state)
    return states


@torch.no_grad()
def constant_leaves(machine: Machine[Any], x_T: Tensor, state: State) -> list[str]:
    """Parts of a state that a step returns unchanged."""
    _, later = machine.step(x_T[:1], state)
    both = zip(leaves(state), leaves(later))
    return [path for (path, leaf), (_, other) in both if leaf is other and leaf.is_floating_point() and leaf.numel()]


def without_eigenvalues(machine: Machine[Any], x_T: Tensor, largest: int, *, state: "State | None" = None) -> str:
    """Why there are none."""
    with torch.no_grad():
        first, second = (size_of(machine.absorb(x_T[None, :length], state)) for length in (1, 2))
    if first != second:
        return "The state grows and its old entries stay unchanged, so the Jacobian of a step has no eigenvalues."
    return f"The state has {second:,} numbers, more than largest={largest:,}: its eigenvalues were left out."


def recurrence_figures(jacobians: Recurrence) -> list[Figure]:
    figures = []
    if jacobians.stretches:
        series = []
        exact = [stretch for stretch in jacobians.stretches if stretch.singular]
        for name, place in (("largest", 0.0), ("median", 0.5), ("smallest", 1.0)):
            values = [(stretch, stretch.singular[round(place * (len(stretch.singular) - 1))]) for stretch in exact]
            points = [
                (float(stretch.steps), value) for stretch, value in values if value > _NOISE * stretch.singular[0]
            ]
            if points:
                series.append(_series(f"{name} singular value", points))
        means = [(float(stretch.steps), stretch.rms) for stretch in jacobians.stretches if stretch.rms > 0]
        if means:
            series.append(_series("root mean square", means))
        figures.append(
            Figure(
                "gradient-jacobian",
                "Singular values over several steps",
                "line",
                Axis("steps", "log", "whole", base=2),
                Axis("singular value", "log"),
                tuple(series),
                reading="Singular values of ∂state(t + steps) / ∂state(t), the product of the Jacobians in between: "
                "above 1 a change of the state grows, below 1 it decays.",
                finding=stretch_sentence(jacobians.stretches),
            )
        )
    if jacobians.eigenvalues_PN:
        radius = [float(eigenvalue.abs().max()) for eigenvalue in jacobians.eigenvalues_PN]
        outside = sum(int((eigenvalue.abs() > 1).sum()) for eigenvalue in jacobians.eigenvalues_PN)
        figures.append(
            Figure(
                "gradient-eigenvalues",
                "Eigenvalues of one step",
                "plane",
                Axis("real part"),
                Axis("imaginary part"),
                tuple(
                    Series(f"at state {at + 1}", tuple(eigenvalue.real.tolist()), tuple(eigenvalue.imag.tolist()))
                    for at, eigenvalue in enumerate(jacobians.eigenvalues_PN)
                ),
                reading="Eigenvalues of ∂state(t + 1) / ∂state(t) at states along the text, with the unit circle: "
                "inside it a change of the state decays, outside it grows.",
                finding=f"The spectral radius is {', '.join(map(plain, radius))}; {outside} of "
                f"{sum(map(len, jacobians.eigenvalues_PN)):,} eigenvalues lie outside of the circle.",
                circle=1.0,
            )
        )
    return figures


def _series(name: str, points: Sequence[tuple[float, float]]) -> Series:
    return Series(name, tuple(x for x, _ in points), tuple(y for _, y in points))


def stretch_sentence(stretches: Sequence[Stretch]) -> str:
    first, last = stretches[0], stretches[-1]
    largest = f" (largest singular value {rough(last.singular[0])})" if last.singular else ""
    word = "decays" if last.rms < 0.95 else "grows" if last.rms > 1.05 else "persists"  # as far as it is printed
    return (
        f"One step multiplies a small change of the state by {rough(first.rms)} in the mean, {last.steps} steps "
        f"by {rough(last.rms)}{largest}: the change {word}."
    )

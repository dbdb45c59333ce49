"""Gradients of an answer's cost with respect to everything that was read for it, and to every state on the way.

T places of a row, E numbers that enter at a place, I that are read there, Q questions.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from statewise.core import Machine, State, leaves, map_state
from statewise.inspection.gradient.flow import Decay
from statewise.inspection.gradient.walked import Visited, composing, learnt, own, walking
from statewise.tasks import Composed, Floats, Part, Specimen

_CHUNK = 1024  # places of a long row that are read at a time
_FEW = 0.25  # of the answers that most distances are reached by: what fewer reach is left out


class RowFlow(NamedTuple):
    queries: tuple[int, ...]
    distance_QT: Floats
    input_QT: Floats
    # Of the state after each place, nan where there is none; None: it is not read along time, or too long for that.
    state_QT: Floats | None
    z_TI: Tensor  # what was read
    # The same of machines that read a stretch of it, or from its end; by what people call their states.
    walked_QT: Mapping[str, Floats]


def follow_row(one: Specimen, queries: Sequence[int], *, states: bool) -> RowFlow:
    """One backward pass a question."""
    with torch.enable_grad():
        x_1TE = one.x_TE[None].detach().clone().requires_grad_()
        z_1TI = one.enter(x_1TE)
        visited: Visited = []
        tree = one.composed if states else None
        with walking(one.readers if states else {}) as walks, composing(tree and tree.composer) as calls:
            if states and one.machine is not None:
                y, visited = _stepped(one, one.machine, z_1TI)
            else:
                y = one.read(z_1TI)
        cost_Q = one.judge(y, x_1TE)[0]
    wanted = [leaf for state in visited for leaf in state]
    aside = [leaf for some in (*walks.values(), calls) for state in some for leaf in state]
    inputs, through, walked = [], [], []
    for query in queries:
        found = torch.autograd.grad(cost_Q[query], [x_1TE, *wanted, *aside], retain_graph=True, allow_unused=True)
        inputs.append(_by_place(found[0], len(one)))
        rest = iter(found[1:])
        if visited:
            through.append(np.array([_norm([next(rest) for _ in state]) for state in visited]))
        walked.append(_walked(one, {name: [[next(rest) for _ in state] for state in walks[name]] for name in walks}))
        if tree is not None:
            through.append(_of_nodes(tree, [[(leaf, next(rest)) for leaf in state] for state in calls]))
    distance_QT = np.stack([one.distance(query) for query in queries])
    # A state after its own question was asked has no say in it: what is exactly 0 there is nothing to draw.
    state_QT = np.full(distance_QT.shape, np.nan) if wanted or tree is not None else None
    if state_QT is not None:
        state_QT[:, len(one) - len(through[0]) :] = through
    walked_QT = {name: np.stack([norms[name] for norms in walked]) for name in walked[0]}
    return RowFlow(tuple(queries), distance_QT, np.stack(inputs), state_QT, z_1TI[0].detach(), walked_QT)


def _of_nodes(tree: Composed, calls: Sequence[Sequence[tuple[Tensor, Tensor | None]]]) -> Floats:
    """Norms by place, of all parts of a node's state together; what does not reach a node leaves it at 0."""
    squares = []
    for call in calls:
        found_N = torch.zeros(len(call[0][0]), dtype=torch.float64)
        for _, gradient in call:
            if gradient is not None:
                found_N += gradient.double().flatten(1).square().sum(1).cpu()
        squares.append(found_N)
    norm_T = np.zeros(len(tree.order_T))
    norm_T[tree.order_T] = torch.cat(squares).sqrt().numpy()
    return norm_T


def _walked(one: Specimen, gradients: Mapping[str, Sequence[Sequence[Tensor | None]]]) -> dict[str, Floats]:
    """Norms by place, of all machines that go the same way through the same stretch; nan: nobody reads that state."""
    squares: dict[str, Floats] = {}
    for name, moments in gradients.items():
        at = one.seen_at(name, len(moments))
        assert at is not None, f"{name} read {len(moments)} of {len(one)} places"
        mine = squares.setdefault(_way(one, name), np.full(len(one), np.nan))
        for place, some in zip(at, moments):
            if any(gradient is not None for gradient in some):
                mine[place] = np.nan_to_num(mine[place]) + _norm(some) ** 2
    return {way: np.sqrt(mine) for way, mine in squares.items()}


def _way(one: Specimen, name: str) -> str:
    """What people call the states of who goes this way through this stretch."""
    first, second = one.seen_order(name, 2)  # of any two places, the one that comes first
    for part in one.parts:
        if part == one.stretch(name):
            return f"state along the {part.name}{', from its end' if first > second else ''}"
    return f"state from the {'end' if first > second else 'front'}"


def follow_long_row(one: Specimen, queries: Sequence[int], *, chunk: int = _CHUNK) -> RowFlow:
    """The same without the states: stretches are read again on the way back, so that one graph at a time is held."""
    assert one.machine is not None, "only what is read along time can be cut"
    assert one.begin is None, "the graph of what was read before is held whole"
    with torch.enable_grad():
        x_1TE = one.x_TE[None].detach().clone().requires_grad_()
        z_1TI = one.enter(x_1TE)
    inputs = [_by_place(_backwards(one, one.machine, x_1TE, z_1TI, query, chunk), len(one)) for query in queries]
    distance_QT = np.stack([one.distance(query) for query in queries])
    return RowFlow(tuple(queries), distance_QT, np.stack(inputs), None, z_1TI[0].detach(), {})


def _backwards(
    one: Specimen, machine: Machine[Any], x_1TE: Tensor, z_1TI: Tensor, query: int, chunk: int
) -> Tensor | None:
    read_1TI = z_1TI.detach()
    starts = range(0, len(one), chunk)
    states: list[State] = [machine.init_state(1)]
    outputs = []
    with torch.no_grad():
        for begin in starts:
            y_1TC, state = machine(read_1TI[:, begin : begin + chunk], states[-1])
            outputs.append(y_1TC)
            states.append(state)
    with torch.enable_grad():
        y_1TC = torch.cat(outputs, dim=1).requires_grad_()
        cost = one.judge(y_1TC, x_1TE)[0, query]
        to_y, to_x = torch.autograd.grad(cost, [y_1TC, x_1TE], allow_unused=True, retain_graph=True)
        to_y = torch.zeros_like(y_1TC) if to_y is None else to_y
        to_z = torch.zeros_like(read_1TI)
        to_state: list[Tensor | None] = [None for _ in leaves(states[-1])]
        for number, begin in reversed(list(enumerate(starts))):
            some = slice(begin, begin + chunk)
            before = map_state(lambda leaf: leaf.detach().requires_grad_(leaf.is_floating_point()), states[number])
            part_1TI = read_1TI[:, some].detach().requires_grad_()
            part_y, after = machine(part_1TI, before)
            carried = [
                (leaf, gradient)
                for (_, leaf), gradient in zip(leaves(after), to_state, strict=True)
                if gradient is not None and leaf.requires_grad
            ]
            wanted = [leaf for _, leaf in leaves(before) if leaf.requires_grad]
            found = torch.autograd.grad(
                [part_y, *(leaf for leaf, _ in carried)],
                [part_1TI, *wanted],
                [to_y[:, some], *(gradient for _, gradient in carried)],
                allow_unused=True,
            )
            to_z[:, some] = found[0] if found[0] is not None else 0.0
            rest = iter(found[1:])
            to_state = [next(rest) if leaf.requires_grad else None for _, leaf in leaves(before)]
        (through,) = torch.autograd.grad(z_1TI, x_1TE, to_z, retain_graph=True, allow_unused=True)
    return through if to_x is None else to_x if through is None else through + to_x


def _stepped(one: Specimen, machine: Machine[Any], z_1TI: Tensor) -> tuple[Tensor, Visited]:
    """What is read, and what can be asked of each state; the first of them is what something else has left."""
    state = own(one.begun(z_1TI))
    outputs, visited = [], [] if one.begin is None else [learnt(state)]
    for z_t in z_1TI[:, one.first :].unbind(1):
        y_t, state = machine.step(z_t, state)
        state = own(state)
        visited.append(learnt(state))
        outputs.append(y_t)
    return torch.stack(outputs, dim=1), visited


def _by_place(gradient: Tensor | None, places: int) -> Floats:
    if gradient is None:
        return np.zeros(places)
    found: Floats = gradient[0].double().flatten(1).norm(dim=1).cpu().numpy()
    return found


def _norm(gradients: Sequence[Tensor | None]) -> float:
    return math.sqrt(sum(float(one.double().square().sum()) for one in gradients if one is not None))


class Sides(NamedTuple):
    """A norm by distance: before an answer and after it, each where that has a say. Both begin at 0 or 1."""

    before: Decay | None
    after: Decay | None


def by_part(rows: Sequence[Specimen], flows: Sequence[RowFlow]) -> dict[str, Sides]:
    """Norms by distance: of what was read (of each text, where a row is several), and of states."""
    named: dict[str, list[tuple[Floats, Floats]]] = {}
    for one, flow in zip(rows, flows):
        for part in one.parts or (Part("input", 0, len(one)),):
            some = slice(part.begin, part.end)
            named.setdefault(part.name, []).append((flow.distance_QT[:, some], flow.input_QT[:, some]))
        if flow.state_QT is not None:
            named.setdefault("state", []).append((flow.distance_QT, flow.state_QT))
        for name, norm_QT in flow.walked_QT.items():
            named.setdefault(name, []).append((flow.distance_QT, norm_QT))
    return {name: found for name, some in named.items() if (found := by_distance(some)) is not None}


def by_distance(norms: Iterable[tuple[Floats, Floats]]) -> Sides | None:
    """Of distances and norms, `[Q, T]` of each row; None where no place has a distance, or nothing flows."""
    gathered: dict[int, list[float]] = {}
    for distance_QT, norm_QT in norms:
        known_QT = ~(np.isnan(distance_QT) | np.isnan(norm_QT))
        for distance, norm in zip(distance_QT[known_QT], norm_QT[known_QT]):
            gathered.setdefault(int(distance), []).append(float(norm))
    if not gathered or not any(any(some) for some in gathered.values()):
        return None
    most = max(map(len, gathered.values()))
    kept = {distance: some for distance, some in gathered.items() if len(some) >= _FEW * most}
    before = {distance: some for distance, some in kept.items() if distance >= 0}
    after = {-distance: some for distance, some in kept.items() if distance <= 0}
    ahead = any(distance > 0 and any(some) for distance, some in after.items())
    back = not ahead or any(map(any, before.values()))
    return Sides(_decay(before) if back else None, _decay(after) if ahead else None)


def _decay(gathered: dict[int, list[float]]) -> Decay:
    distances = sorted(gathered)
    rows = [
        (float(np.mean(gathered[one])), *(float(q) for q in np.quantile(gathered[one], [0.25, 0.75])))
        for one in distances
    ]
    means, low, high = zip(*rows)
    return Decay(tuple(distances), means, low, high)

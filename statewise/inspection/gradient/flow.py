"""Gradients of an answer's loss with respect to every input and every state before it, for any model.

B rows, T places of a row (time steps, nodes of a tree), Q queries (answers whose loss is followed back), E numbers that
enter at a place, I numbers that are read there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from statewise.core import Composer, Machine, State, leaves, map_state
from statewise.display import Progress
from statewise.tasks import Composed, Floats, Part, Specimen

LossAt = Callable[[Tensor, int], Tensor]  # outputs of a time step, and its number, to the loss of each row
Leaves = list[Tensor]  # the tensors of a state that gradients flow through

_CHUNK = 1024  # places of a long row that are read at a time
_FEW = 0.25  # of the answers at the most frequent distance: distances with fewer answers are left out


class Flow(NamedTuple):
    """Gradient norms of one row. nan: there is no such state, or it comes after its query."""

    queries: tuple[int, ...]
    distance_QT: Floats  # from a place to the answer; nan: the place cannot influence it
    input_QT: Floats | None  # None: the input has no gradient
    state_QT: Floats | None  # of the state after each place; None: there is none, or the row is too long
    z_TI: Tensor  # what was read
    parts: tuple[Part, ...]  # of the row; one part where it is a single text
    # The same for machines that read a part of the row, or read it backwards, by the name of their states.
    reader_QT: Mapping[str, Floats]


# -------------------------------------------------------------------- step by step


def steps(machine: Machine[Any], x_T: Iterable[Tensor], state: State) -> Iterator[tuple[Tensor, State]]:
    """Outputs and states. By the law `step` this equals `forward`, but every state can be differentiated."""
    for x_t in x_T:
        y_t, state = machine.step(x_t, state)
        state = _own(state)
        yield y_t, state


def _own(state: State) -> State:
    """A leaf that a step returns unchanged is the same tensor: as a view it has a gradient of its own."""
    return map_state(lambda leaf: leaf.view_as(leaf) if leaf.requires_grad else leaf, state)


def _differentiable(state: State) -> Leaves:
    return [leaf for _, leaf in leaves(state) if leaf.requires_grad]


@contextmanager
def _stepwise(readers: Mapping[str, Machine[Any]]) -> Iterator[dict[str, list[Leaves]]]:
    """Make these machines read step by step; the states of each, by the machine's name."""
    visited: dict[str, list[Leaves]] = {}

    def stepper(name: str) -> Any:
        def read_again(machine: nn.Module, given: tuple[Any, ...], answer: Any) -> tuple[Tensor, State]:
            """Replaces the output by the same one, with a graph that goes through every state."""
            assert isinstance(machine, Machine)
            x_1TI = given[0]
            state = given[1] if len(given) > 1 and given[1] is not None else machine.init_state(len(x_1TI))
            outputs, states = zip(*steps(machine, x_1TI.unbind(1), state))
            visited[name] = [_differentiable(later) for later in states]
            return torch.stack(outputs, dim=1), states[-1]

        return read_again

    with ExitStack() as stack:
        for name, machine in readers.items():
            stack.callback(machine.register_forward_hook(stepper(name)).remove)
        yield visited


@contextmanager
def _composing(composer: Composer[Any] | None) -> Iterator[list[Leaves]]:
    """The states that a composer makes, call by call, each with a row per node."""
    visited: list[Leaves] = []

    def note(_: nn.Module, given: tuple[Any, ...], state: State) -> State:
        state = _own(state)
        visited.append(_differentiable(state))
        return state

    with ExitStack() as stack:
        if composer is not None:
            stack.callback(composer.register_forward_hook(note).remove)
        yield visited


@contextmanager
def _embedded(machine: Machine[Any]) -> Iterator[list[Tensor]]:
    """The embeddings of tokens, as they are computed.

    No layer is looked up by its name: it is the first that is given integers only and returns floats.
    """
    vectors: list[Tensor] = []

    def note(_: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        integers = bool(given) and all(isinstance(x, Tensor) and not x.is_floating_point() for x in given)
        if integers and isinstance(output, Tensor) and output.is_floating_point() and output.requires_grad:
            vectors.append(output)

    with ExitStack() as stack:
        for module in machine.modules():
            if module is not machine:
                stack.callback(module.register_forward_hook(note).remove)
        yield vectors


def _norm(gradients: Sequence[Tensor | None], rows: int) -> Tensor:
    """Norm of all gradients together, for each row; 0 where nothing flows."""
    squares_B = torch.zeros(rows, dtype=torch.float64)
    for gradient in gradients:
        if gradient is not None:
            squares_B += gradient.double().flatten(1).square().sum(1).cpu()
    return squares_B.sqrt()


# -------------------------------------------------------------------- windows of a text


def follow(
    machine: Machine[Any], x_BT: Tensor, loss_at: LossAt, queries: Sequence[int], progress: Progress
) -> list[Flow]:
    """Rows of equal length side by side, with one backward pass a query; one flow per row."""
    batch, time = x_BT.shape[:2]
    inputs: list[Tensor] = []
    states: list[Leaves] = []
    losses: dict[int, Tensor] = {}
    x_T = list(x_BT.unbind(1))
    if x_BT.is_floating_point():
        inputs = x_T = [x_t.detach().requires_grad_() for x_t in x_T]
    with torch.enable_grad(), _embedded(machine) as vectors:
        for t, (y_t, state) in enumerate(steps(machine, x_T, machine.init_state(batch))):
            states.append(_differentiable(state))
            if inputs is not x_T:
                inputs += vectors[:1]
                vectors.clear()
            if t in queries:
                losses[t] = loss_at(y_t, t)
    state_QTB, input_QTB = np.full((2, len(queries), time, batch), np.nan)
    for row, query in enumerate(progress.over(queries, "following gradients back")):
        before = [*states[: query + 1], *([leaf] for leaf in (inputs[: query + 1] if len(inputs) == time else ()))]
        wanted = [leaf for group in before for leaf in group]
        if not losses[query].requires_grad or not wanted:
            continue
        gradients = iter(torch.autograd.grad(losses[query].sum(), wanted, retain_graph=True, allow_unused=True))
        norms = [_norm([next(gradients) for _ in group], batch).numpy() for group in before]
        state_QTB[row, : query + 1] = norms[: query + 1]
        if len(norms) > query + 1:
            input_QTB[row, : query + 1] = norms[query + 1 :]
    distance_QT = np.array([[query - t if t <= query else np.nan for t in range(time)] for query in queries])
    return [
        Flow(
            tuple(queries),
            distance_QT,
            input_QTB[..., row] if len(inputs) == time else None,
            state_QTB[..., row] if any(states) else None,
            x_BT[row],
            (Part("input", 0, time),),
            {},
        )
        for row in range(batch)
    ]


# -------------------------------------------------------------------- one row of any task


def follow_row(row: Specimen, queries: Sequence[int], *, states: bool) -> Flow:
    """One backward pass a query; `states`: with respect to states, too."""
    tree = row.composed if states else None
    visited: list[Leaves] = []
    with torch.enable_grad():
        x_1TE = row.x_TE[None].detach().clone().requires_grad_()
        z_1TI = row.enter(x_1TE)
        with _stepwise(row.readers if states else {}) as by_reader, _composing(tree and tree.composer) as calls:
            if states and row.machine is not None:
                y, visited = _stepped(row, row.machine, z_1TI)
            else:
                y = row.read(z_1TI)
        cost_Q = row.judge(y, x_1TE)[0]
    wanted = [leaf for groups in (visited, calls, *by_reader.values()) for group in groups for leaf in group]
    inputs, through, by_name = [], [], []
    for query in queries:
        gradients = iter(torch.autograd.grad(cost_Q[query], [x_1TE, *wanted], retain_graph=True, allow_unused=True))
        inputs.append(_by_place(next(gradients), len(row)))
        if visited:
            through.append(np.array([float(_norm([next(gradients) for _ in group], 1)) for group in visited]))
        if tree is not None:
            through.append(_by_node(tree, [_norm([next(gradients) for _ in call], len(call[0])) for call in calls]))
        by_name.append(
            _by_reader(
                row, {name: [[next(gradients) for _ in group] for group in by_reader[name]] for name in by_reader}
            )
        )
    distance_QT = np.stack([row.distance(query) for query in queries])
    # A state after its own query cannot influence it: an exact 0 there is nothing to draw.
    state_QT = np.full(distance_QT.shape, np.nan) if through else None
    if state_QT is not None:
        state_QT[:, len(row) - len(through[0]) :] = through
    reader_QT = {name: np.stack([norms[name] for norms in by_name]) for name in by_name[0]}
    return _row_flow(row, queries, distance_QT, np.stack(inputs), state_QT, z_1TI, reader_QT)


def _row_flow(
    row: Specimen,
    queries: Sequence[int],
    distance_QT: Floats,
    input_QT: Floats,
    state_QT: Floats | None,
    z_1TI: Tensor,
    reader_QT: Mapping[str, Floats],
) -> Flow:
    parts = row.parts or (Part("input", 0, len(row)),)
    return Flow(tuple(queries), distance_QT, input_QT, state_QT, z_1TI[0].detach(), parts, reader_QT)


def _stepped(row: Specimen, machine: Machine[Any], z_1TI: Tensor) -> tuple[Tensor, list[Leaves]]:
    """The outputs, and each state; the first one where something else has set it."""
    state = _own(row.begun(z_1TI))
    outputs, states = zip(*steps(machine, z_1TI[:, row.first :].unbind(1), state))
    visited = [*(states if row.begin is None else (state, *states))]
    return torch.stack(outputs, dim=1), [_differentiable(each) for each in visited]


def _by_place(gradient: Tensor | None, places: int) -> Floats:
    if gradient is None:
        return np.zeros(places)
    norm_T: Floats = gradient[0].double().flatten(1).norm(dim=1).cpu().numpy()
    return norm_T


def _by_node(tree: Composed, norms: Sequence[Tensor]) -> Floats:
    norm_T = np.zeros(len(tree.order_T))
    norm_T[tree.order_T] = torch.cat(list(norms)).numpy()
    return norm_T


def _by_reader(row: Specimen, gradients: Mapping[str, Sequence[Sequence[Tensor | None]]]) -> dict[str, Floats]:
    """Norms by place, of all machines that read the same part in the same direction; nan: nothing reads that state."""
    squares: dict[str, Floats] = {}
    for name, steps_ in gradients.items():
        at = row.seen_at(name, len(steps_))
        assert at is not None, f"{name} read {len(steps_)} of {len(row)} places"
        square_T = squares.setdefault(_state_name(row, name), np.full(len(row), np.nan))
        for place, group in zip(at, steps_):
            if any(gradient is not None for gradient in group):
                square_T[place] = np.nan_to_num(square_T[place]) + float(_norm(group, 1)) ** 2
    return {name: np.sqrt(square_T) for name, square_T in squares.items()}


def _state_name(row: Specimen, name: str) -> str:
    """The states of a reader, by the part that it reads and its direction."""
    first, second = row.seen_order(name, 2)  # of any two places, the one that is read first
    for part in row.parts:
        if part == row.stretch(name):
            return f"state along the {part.name}{', from its end' if first > second else ''}"
    return f"state from the {'end' if first > second else 'front'}"


# -------------------------------------------------------------------- a long row


def follow_long_row(row: Specimen, queries: Sequence[int], *, chunk: int = _CHUNK) -> Flow:
    """Inputs only: chunks are read again on the way back, so that one graph at a time is in memory."""
    assert row.machine is not None, "only what is read along time can be cut"
    assert row.begin is None, "the graph of what was read before is held whole"
    with torch.enable_grad():
        x_1TE = row.x_TE[None].detach().clone().requires_grad_()
        z_1TI = row.enter(x_1TE)
    inputs = [_by_place(_backwards(row, row.machine, x_1TE, z_1TI, query, chunk), len(row)) for query in queries]
    distance_QT = np.stack([row.distance(query) for query in queries])
    return _row_flow(row, queries, distance_QT, np.stack(inputs), None, z_1TI, {})


def _backwards(
    row: Specimen, machine: Machine[Any], x_1TE: Tensor, z_1TI: Tensor, query: int, chunk: int
) -> Tensor | None:
    read_1TI = z_1TI.detach()
    starts = range(0, len(row), chunk)
    states: list[State] = [machine.init_state(1)]
    outputs = []
    with torch.no_grad():
        for begin in starts:
            y_1TC, state = machine(read_1TI[:, begin : begin + chunk], states[-1])
            outputs.append(y_1TC)
            states.append(state)
    with torch.enable_grad():
        y_1TC = torch.cat(outputs, dim=1).requires_grad_()
        cost = row.judge(y_1TC, x_1TE)[0, query]
        to_y, to_x = torch.autograd.grad(cost, [y_1TC, x_1TE], allow_unused=True, retain_graph=True)
        to_y = torch.zeros_like(y_1TC) if to_y is None else to_y
        to_z = torch.zeros_like(read_1TI)
        to_state: list[Tensor | None] = [None for _ in leaves(states[-1])]
        for number, begin in reversed(list(enumerate(starts))):
            places = slice(begin, begin + chunk)
            before = map_state(lambda leaf: leaf.detach().requires_grad_(leaf.is_floating_point()), states[number])
            part_1TI = read_1TI[:, places].detach().requires_grad_()
            part_y, after = machine(part_1TI, before)
            carried = [
                (leaf, gradient)
                for (_, leaf), gradient in zip(leaves(after), to_state, strict=True)
                if gradient is not None and leaf.requires_grad
            ]
            gradients = torch.autograd.grad(
                [part_y, *(leaf for leaf, _ in carried)],
                [part_1TI, *_differentiable(before)],
                [to_y[:, places], *(gradient for _, gradient in carried)],
                allow_unused=True,
            )
            to_z[:, places] = gradients[0] if gradients[0] is not None else 0.0
            rest = iter(gradients[1:])
            to_state = [next(rest) if leaf.requires_grad else None for _, leaf in leaves(before)]
        (through,) = torch.autograd.grad(z_1TI, x_1TE, to_z, retain_graph=True, allow_unused=True)
    return through if to_x is None else to_x if through is None else through + to_x


# -------------------------------------------------------------------- norms by distance


class Decay(NamedTuple):
    """A norm by distance: its mean and its middle half."""

    distance: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def length(self, threshold: float) -> int | None:
        """The distance from which on the norm stays below a share of its largest; None: it never does."""
        border = threshold * max(self.mean)
        above = [distance for distance, norm in zip(self.distance, self.mean) if norm >= border]
        return above[-1] + 1 if above and above[-1] < self.distance[-1] else None


class Sides(NamedTuple):
    """A norm by distance before an answer and after it; None where nothing flows."""

    before: Decay | None
    after: Decay | None


def by_part(flows: Sequence[Flow], *, reached_by: float = _FEW) -> dict[str, Sides]:
    """Norms by distance: of inputs (by part, where a row has several), and of states."""
    named: dict[str, list[tuple[Floats, Floats]]] = {}
    for flow in flows:
        if flow.input_QT is not None:
            for name, begin, end in flow.parts:
                named.setdefault(name, []).append((flow.distance_QT[:, begin:end], flow.input_QT[:, begin:end]))
        states = {} if flow.state_QT is None else {"state": flow.state_QT}
        for name, norm_QT in {**states, **flow.reader_QT}.items():
            named.setdefault(name, []).append((flow.distance_QT, norm_QT))
    sides = {name: by_distance(norms, reached_by=reached_by) for name, norms in named.items()}
    return {name: side for name, side in sides.items() if side is not None}


def by_distance(norms: Iterable[tuple[Floats, Floats]], *, reached_by: float = _FEW) -> Sides | None:
    """From distances and norms, `[Q, T]` of each row; None where no place has a distance, or nothing flows.

    Only distances that `reached_by` of the answers have (those of the most frequent distance are all).
    """
    gathered: dict[int, list[float]] = {}
    for distance_QT, norm_QT in norms:
        known_QT = ~(np.isnan(distance_QT) | np.isnan(norm_QT))
        for distance, norm in zip(distance_QT[known_QT], norm_QT[known_QT]):
            gathered.setdefault(int(distance), []).append(float(norm))
    if not gathered or not any(any(some) for some in gathered.values()):
        return None
    most = max(map(len, gathered.values()))
    kept = {distance: some for distance, some in gathered.items() if len(some) >= reached_by * most}
    before = {distance: some for distance, some in kept.items() if distance >= 0}
    after = {-distance: some for distance, some in kept.items() if distance <= 0}
    ahead = any(distance > 0 and any(some) for distance, some in after.items())
    back = not ahead or any(map(any, before.values()))
    return Sides(_decay(before) if back else None, _decay(after) if ahead else None)


def _decay(gathered: dict[int, list[float]]) -> Decay:
    distances = sorted(gathered)
    rows = [
        (float(np.mean(gathered[at])), *(float(q) for q in np.quantile(gathered[at], [0.25, 0.75]))) for at in distances
    ]
    means, low, high = zip(*rows)
    return Decay(tuple(distances), means, low, high)

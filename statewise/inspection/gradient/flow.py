"""Gradients of one moment's loss with respect to every earlier state and input, for any machine.

B rows, T time, Q queries: the moments whose loss is followed back.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from statewise.core import Machine, State, leaves, map_state
from statewise.inspection.progress import Progress

LossAt = Callable[[Tensor, int], Tensor]  # outputs of a moment, and which one it is, to the loss of each row


class Flow(NamedTuple):
    """Norms, row by row. A place after its query holds nothing: nan."""

    queries: tuple[int, ...]
    state_QTB: Tensor | None  # of the state *after* each moment; None: no number in it is learnt through
    input_QTB: Tensor | None  # None: what the machine reads has no gradient


class _Unrolled(NamedTuple):
    states: list[list[Tensor]]  # by moment
    inputs: list[Tensor]
    losses: dict[int, Tensor]


def follow(machine: Machine[Any], x_BT: Tensor, loss_at: LossAt, queries: Sequence[int], progress: Progress) -> Flow:
    """One step after the other, so that every state on the way can be asked; one backward pass a query."""
    batch, time = x_BT.shape[:2]
    with torch.enable_grad():
        states, inputs, losses = _unroll(machine, x_BT, loss_at, set(queries))
    empty_QTB = torch.full((len(queries), time, batch), torch.nan, dtype=torch.float64)
    state_QTB = empty_QTB.clone() if any(states) else None
    input_QTB = empty_QTB.clone() if len(inputs) == time else None
    for row, query in enumerate(progress.over(queries, "following gradients back")):
        wanted = [leaf for state in states[: query + 1] for leaf in state]
        read = inputs[: query + 1] if input_QTB is not None else []
        if not losses[query].requires_grad or not (wanted or read):
            continue
        found = list(torch.autograd.grad(losses[query].sum(), [*wanted, *read], retain_graph=True, allow_unused=True))
        here = iter(found)
        for t, state in enumerate(states[: query + 1]):
            norm_B = _norm([next(here) for _ in state], batch)
            if state_QTB is not None:
                state_QTB[row, t] = norm_B
        for t, gradient in enumerate(here):
            assert input_QTB is not None
            input_QTB[row, t] = _norm([gradient], batch)
    return Flow(tuple(queries), state_QTB, input_QTB)


def _unroll(machine: Machine[Any], x_BT: Tensor, loss_at: LossAt, wanted: set[int]) -> _Unrolled:
    state: State = machine.init_state(len(x_BT))
    states, inputs, losses = [], [], {}
    with _turned_into_vectors(machine) as vectors:
        for t, x_t in enumerate(x_BT.unbind(1)):
            vectors.clear()
            if x_t.is_floating_point():
                x_t = x_t.detach().requires_grad_()
                vectors.append(x_t)
            y_t, state = machine.step(x_t, state)
            # A leaf that a step hands on unchanged is the same tensor: as a view it has a gradient of its own.
            state = map_state(lambda leaf: leaf.view_as(leaf) if leaf.requires_grad else leaf, state)
            states.append([leaf for _, leaf in leaves(state) if leaf.requires_grad])
            inputs += vectors[:1]
            if t in wanted:
                losses[t] = loss_at(y_t, t)
    return _Unrolled(states, inputs, losses)


@contextmanager
def _turned_into_vectors(machine: Machine[Any]) -> Iterator[list[Tensor]]:
    """Vectors that stand for whole numbers, as they are made.

    No layer is asked for by its name: the first that is given whole numbers alone and answers in others is the one.
    """
    seen: list[Tensor] = []

    def look(_: nn.Module, given: tuple[Any, ...], answer: Any) -> None:
        whole = bool(given) and all(isinstance(one, Tensor) and not one.is_floating_point() for one in given)
        if whole and isinstance(answer, Tensor) and answer.is_floating_point() and answer.requires_grad:
            seen.append(answer)

    handles = [part.register_forward_hook(look) for part in machine.modules() if part is not machine]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _norm(gradients: Sequence[Tensor | None], batch: int) -> Tensor:
    """Of all parts together, for each row; what does not reach a part leaves it at 0."""
    squares_B = torch.zeros(batch, dtype=torch.float64)
    for one in gradients:
        if one is not None:
            squares_B += one.double().flatten(1).square().sum(1).cpu()
    return squares_B.sqrt()


class Decay(NamedTuple):
    """A norm against distance: the mean and the middle half of it."""

    distance: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def length(self, threshold: float) -> int | None:
        """The distance from which on the norm stays below a share of its largest; None: it never does."""
        border = threshold * max(self.mean)
        above = [distance for distance, norm in zip(self.distance, self.mean) if norm >= border]
        return above[-1] + 1 if above and above[-1] < self.distance[-1] else None


def decay(queries: Sequence[int], norm_QTB: Tensor) -> Decay:
    """By how long before its query a moment lies. Only distances that the earlier half of the queries reaches, too."""
    reach = sorted(queries)[len(queries) // 2]
    distances, rows = list(range(reach + 1)), []
    for distance in distances:
        norm_N = torch.cat([norm_QTB[q, t - distance] for q, t in enumerate(queries) if t >= distance])
        quarters = torch.quantile(norm_N, torch.tensor([0.25, 0.75], dtype=norm_N.dtype)).tolist()
        rows.append((float(norm_N.mean()), *quarters))
    means, low, high = zip(*rows)
    return Decay(tuple(distances), means, low, high)

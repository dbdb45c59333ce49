"""Rows of any lengths as one list of time steps: all rows at the first step, then all that still run at the next.

The longest rows come first, so the rows that run at a time step are always the first few: a loop over time needs no
mask, and leaves one matrix behind, for one product. `torch.nn.utils.rnn.PackedSequence` has the same layout.

B batch, T time, I input width, D width, N time steps of all rows.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

W = TypeVar("W")
Rows = list[int]  # how many rows run at each time step

# Numbers in a working set that stays in the cache while several passes are made over it.
IN_CACHE = 1 << 14


class PackedRows(NamedTuple):
    x_NI: Tensor
    rows: Rows
    shape: tuple[int, int]
    order_B: Tensor | None = None  # None: all rows are full, and stay where they are
    lengths_B: Tensor | None = None  # in that order

    @staticmethod
    def of(x_BTI: Tensor, lengths_B: Tensor | None) -> "PackedRows":
        batch, time = x_BTI.shape[:2]
        if lengths_B is None:
            x_NI = x_BTI.transpose(0, 1).reshape(time * batch, x_BTI.shape[2])
            return PackedRows(x_NI, [batch] * time, (batch, time))
        lengths_B, order_B = lengths_B.clamp(min=0, max=time).sort(descending=True, stable=True)
        running_TB = _running(lengths_B, time)
        rows = [count for count in running_TB.sum(1).tolist() if count]
        return PackedRows(x_BTI[order_B].transpose(0, 1)[running_TB], rows, (batch, time), order_B, lengths_B)

    def sorted(self, h_BD: Tensor) -> Tensor:
        return h_BD if self.order_B is None else h_BD[self.order_B]

    def restored(self, states_ND: Tensor, h_BD: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [B, T, D], 0 past each row's end, and the state each row ends with."""
        batch, time = self.shape
        if self.order_B is None or self.lengths_B is None:
            states_TBD = states_ND.view(time, batch, -1)
            return states_TBD.transpose(0, 1), states_TBD[-1]
        running_TB = _running(self.lengths_B, time)
        y_TBD = states_ND.new_zeros(time, batch, states_ND.shape[1]).index_put((running_TB,), states_ND)
        last_BD = y_TBD[(self.lengths_B - 1).clamp(min=0), torch.arange(batch, device=y_TBD.device)]
        inverse_B = self.order_B.argsort()
        after_BD = torch.where((self.lengths_B > 0)[inverse_B, None], last_BD[inverse_B], h_BD)
        return y_TBD[:, inverse_B].transpose(0, 1), after_BD


def read_packed(
    run: Callable[[Tensor, Tensor, W, Rows], Tensor], x_BTI: Tensor, h_BD: Tensor, weights: W, lengths_B: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Outputs and last state by a function that gives all states of packed rows."""
    packed = PackedRows.of(x_BTI, lengths_B)
    if not packed.rows:
        return x_BTI.new_zeros(*packed.shape, h_BD.shape[1]), h_BD
    return packed.restored(run(packed.x_NI, packed.sorted(h_BD), weights, packed.rows), h_BD)


def _running(lengths_B: Tensor, time: int) -> Tensor:
    return torch.arange(time, device=lengths_B.device)[:, None] < lengths_B


def begin_with(first_BD: Tensor, count: int, rows: Rows) -> Tensor:
    """Memory for the states of `count` time steps behind the first state."""
    states_ND = first_BD.new_empty(rows[0] + count, first_BD.shape[1])
    states_ND[: rows[0]] = first_BD[: rows[0]]
    return states_ND


def before_and_after(states_ND: Tensor, rows: Rows) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each time step, the state before and the one after it, from the memory that `begin_with` made."""
    states = states_ND.split_with_sizes([rows[0], *rows])
    before = states[:-1]
    if rows[-1] != rows[0]:
        before = tuple(state[:running] for state, running in zip(before, rows, strict=True))
    return zip(before, states[1:], strict=True)


def states_before(states_ND: Tensor, rows: Rows) -> Tensor:
    """The state before each time step, as one matrix."""
    if rows[-1] == rows[0]:
        return states_ND[: -rows[0]]
    return torch.cat([before_BD for before_BD, _ in before_and_after(states_ND, rows)])

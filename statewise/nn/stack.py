"""Layers above each other, each read in one direction or two, with dropout between: what torch.nn's stack does.

B batch, T time, I input width, D output width, N packed time steps, L layers times directions.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from statewise.core import scope
from statewise.kernels import Rows, reverse_rows
from statewise.nn.call import Call, State

Result = tuple[Tensor, State]


class Layer(NamedTuple):
    """One layer in one direction, from a state or, without one, from zeros. `over_rows` reads [B, T, I] and lengths.

    `over_packed` reads [N, I], rows as in `kernels/packed_sequence.py`, and gives all states; without it, packed rows
    are padded. `apart`: the last state of `over_rows` has its own memory.
    """

    over_rows: Callable[[Tensor, State | None, Tensor | None], Result]
    over_packed: Callable[[Tensor, State | None, Rows], Tensor] | None = None
    apart: bool = False


# One layer over the input as it is stored; the last argument asks for it to be read backwards.
Reader = Callable[[Layer, Tensor, State | None, bool], Result]


def run_stack(module: nn.RNNBase, call: Call, layers: Sequence[Layer], state: State | None) -> Result:
    """Outputs as they are stored, and every part of the state `[L, B, ...]`."""
    directions = 2 if module.bidirectional else 1
    read = _read_full if call.sizes_T is None else _read_packed(call.sizes_T)
    x, after = call.x, []
    for depth in range(module.num_layers):
        ways = []
        for way in range(directions):
            at = depth * directions + way
            with scope(f"l{depth}_reverse" if way else f"l{depth}"):
                begin = None if state is None else tuple(part[at] for part in state)
                y, final = read(layers[at], x, begin, bool(way))
            ways.append(y)
            after.append(final)
        x = torch.cat(ways, dim=-1) if len(ways) > 1 else ways[0]
        if module.training and module.dropout > 0 and depth < module.num_layers - 1:
            # Chance is drawn in the order of memory: as torch.nn lies there, the same seed gives the same mask.
            x = F.dropout(x.contiguous(), module.dropout)
    if directions == 1 and layers[-1].over_packed is not None:
        x = x.clone()  # what our backward still reads; torch.nn's result may be written over, by an `inplace=True` too
    if len(after) == 1 and layers[0].apart:
        return x, tuple(part[None] for part in after[0])
    return x, tuple(torch.stack(parts) for parts in zip(*after, strict=True))


def _read_full(layer: Layer, x_TBI: Tensor, state: State | None, backwards: bool) -> Result:
    y_BTD, after = layer.over_rows((x_TBI.flip(0) if backwards else x_TBI).transpose(0, 1), state, None)
    y_TBD = y_BTD.transpose(0, 1)
    return (y_TBD.flip(0) if backwards else y_TBD), after


def _read_packed(sizes_T: Tensor) -> Reader:
    """Packed rows are stored longest first, time step by time step."""
    rows: Rows = sizes_T.tolist()
    at_T1, at_B = torch.arange(len(rows))[:, None], torch.arange(rows[0])
    running_TB = at_B < sizes_T[:, None]
    lengths_B = running_TB.sum(0)
    start_T = sizes_T.cumsum(0) - sizes_T
    last_B = start_T[lengths_B - 1] + at_B

    def read(layer: Layer, x_NI: Tensor, state: State | None, backwards: bool) -> Result:
        device = x_NI.device
        if layer.over_packed is None:
            there_B = lengths_B.to(device)
            x_BTI, _ = pad_packed_sequence(PackedSequence(x_NI, sizes_T), batch_first=True)
            y_BTD, after = layer.over_rows(reverse_rows(x_BTI, there_B) if backwards else x_BTI, state, there_B)
            y_BTD = reverse_rows(y_BTD, there_B) if backwards else y_BTD
            return pack_padded_sequence(y_BTD, lengths_B, batch_first=True).data, after
        if not backwards:
            y_ND = layer.over_packed(x_NI, state, rows)
            return y_ND, (y_ND[last_B],)
        # Time step t of a row changes places with time step t from its end.
        mirror_N = (start_T[(lengths_B - 1 - at_T1).clamp(min=0)] + at_B)[running_TB]
        y_ND = layer.over_packed(x_NI[mirror_N], state, rows)
        return y_ND[mirror_N], (y_ND[last_B],)

    return read

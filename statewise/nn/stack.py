"""Layers above each other, each read in one direction or two, with dropout between: what torch.nn's stack does.

B batch, T time, I input width, D output width, N packed time steps, L layers times directions.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from statewise.core import scope
from statewise.kernels import Rows, Wish, reverse_rows
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


class VectorWeights(Protocol):
    """Weights of a cell whose state is one vector."""

    def zero_state(self, batch: int) -> Tensor: ...


W = TypeVar("W", bound=VectorWeights)


def vector_layer(
    run: Callable[..., tuple[Tensor, Tensor]],
    run_packed: Callable[[Tensor, Tensor, W, Rows], Tensor],
    weights: W,
    wish: Wish,
) -> Layer:
    """A layer whose state is one vector, by the op for rows and the one for packed rows."""

    def over_rows(x_BTI: Tensor, state: State | None, lengths_B: Tensor | None) -> Result:
        y_BTD, h_BD = run(x_BTI, state[0] if state else None, weights, lengths_B, wish=wish)
        return y_BTD, (h_BD,)

    def over_packed(x_NI: Tensor, state: State | None, rows: Rows) -> Tensor:
        return run_packed(x_NI, state[0] if state else weights.zero_state(rows[0]), weights, rows)

    if wish != "batched":
        return Layer(over_rows, apart=wish == "persistent")
    return Layer(over_rows, over_packed)


# One layer over the input as it is stored; the last argument asks for it to be read backwards.
Reader = Callable[[Layer, Tensor, State | None, bool], Result]


def run_stack(module: nn.RNNBase, call: Call, layers: Sequence[Layer], state: State | None) -> Result:
    """Outputs as they are stored, and every part of the state `[L, B, ...]`."""
    directions = 2 if module.bidirectional else 1
    read = _read_full if call.sizes_T is None else _read_packed(call.sizes_T)
    x, after = call.x, []
    for depth in range(module.num_layers):
        outputs = []
        for reverse in range(directions):
            at = depth * directions + reverse
            with scope(f"l{depth}_reverse" if reverse else f"l{depth}"):
                begin = None if state is None else tuple(part[at] for part in state)
                y, final = read(layers[at], x, begin, bool(reverse))
            outputs.append(y)
            after.append(final)
        x = torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0]
        if module.training and module.dropout > 0 and depth < module.num_layers - 1:
            # Random numbers are drawn in the order of memory: in torch.nn's layout the same seed gives the same mask.
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

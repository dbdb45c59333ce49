"""One way to call PyTorch's fused recurrences: from any state, over full rows or ragged ones.

B batch, T time, I input width, D width, N packed time steps.
"""

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from statewise.core import tool

Op = Callable[..., tuple[Tensor, ...]]
Result = tuple[Tensor, tuple[Tensor, ...]]

# cuDNN wants one block of memory and copies our separate matrices into it: a copy of the weights per call,
# against a whole sequence of products with them.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


def run_torch_op(
    op: Op, x_BTI: Tensor, state: tuple[Tensor, ...], weights: Sequence[Tensor], lengths_B: Tensor | None
) -> Result:
    """`torch.lstm`, `torch.gru`, `torch.rnn_tanh` or `torch.rnn_relu` over one layer, one direction."""
    if lengths_B is None:
        return _full(op, x_BTI, state, weights)
    lengths_B = lengths_B.clamp(min=0, max=x_BTI.shape[1])
    if x_BTI.device.type == "cpu":
        return in_pieces(lambda x, some: _full(op, x, some, weights), x_BTI, state, lengths_B)
    return _packed(op, x_BTI, state, weights, lengths_B)


def _options() -> tuple[Any, ...]:
    # has_biases, num_layers, dropout, train (cuDNN keeps what backward needs only then), bidirectional
    keep = torch.is_grad_enabled() or tool() == "torch.jit.trace"  # which tries without gradients what it has read
    return (True, 1, 0.0, keep, False)


def _hx(state: tuple[Tensor, ...]) -> Any:
    layered = tuple(part[None].contiguous() for part in state)  # cuDNN takes no views
    return layered if len(layered) > 1 else layered[0]


def _full(op: Op, x_BTI: Tensor, state: tuple[Tensor, ...], weights: Sequence[Tensor]) -> Result:
    y_BTD, *after = op(x_BTI, _hx(state), weights, *_options(), True)
    return y_BTD, tuple(new[0].to(old.dtype) for new, old in zip(after, state, strict=True))


def in_pieces(
    full: Callable[[Tensor, tuple[Tensor, ...]], Result], x_BTI: Tensor, state: tuple[Tensor, ...], lengths_B: Tensor
) -> Result:
    """Longest rows first, one call of `full` between each two lengths at which rows end.

    On a CPU this is faster than packing (`benchmarks/ragged.py` says by how much): PyTorch sends packed
    rows past oneDNN, to a loop of its own.
    """
    lengths_B = lengths_B.clamp(min=0, max=x_BTI.shape[1])
    order_B = lengths_B.argsort(descending=True, stable=True)
    inverse_B = order_B.argsort()
    x_BTI, state, lengths_B = x_BTI[order_B], tuple(part[order_B] for part in state), lengths_B[order_B]
    batch, time = x_BTI.shape[:2]
    ends = sorted(set(lengths_B.tolist()) - {0})
    pieces = []
    for start, end in pairwise([0, *ends]):
        active = int((lengths_B >= end).sum())
        y_ATD, after = full(x_BTI[:active, start:end], tuple(part[:active] for part in state))
        pieces.append(F.pad(y_ATD, (0, 0, 0, 0, 0, batch - active)))
        state = tuple(torch.cat([new, old[active:]]) for new, old in zip(after, state, strict=True))
    read = ends[-1] if ends else 0
    if read < time:
        pieces.append(x_BTI.new_zeros(batch, time - read, state[0].shape[1]))
    return torch.cat(pieces, dim=1)[inverse_B], tuple(part[inverse_B] for part in state)


def _packed(op: Op, x_BTI: Tensor, state: tuple[Tensor, ...], weights: Sequence[Tensor], lengths_B: Tensor) -> Result:
    """Packing cannot hold an empty row: it rides along as a row of one time step, and its result is dropped."""
    packed = pack_padded_sequence(x_BTI, lengths_B.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
    data_NI, sizes_T, order_B, inverse_B = packed
    assert order_B is not None
    assert inverse_B is not None
    y_ND, *after = op(data_NI, sizes_T, _hx(tuple(part[order_B] for part in state)), weights, *_options())
    y_BTD, _ = pad_packed_sequence(
        PackedSequence(y_ND, sizes_T, order_B, inverse_B), batch_first=True, total_length=x_BTI.shape[1]
    )
    read_B1 = (lengths_B > 0)[:, None]
    y_BTD = torch.where(read_B1[:, :, None], y_BTD, torch.zeros_like(y_BTD))
    return y_BTD, tuple(
        torch.where(read_B1, new[0][inverse_B].to(old.dtype), old) for new, old in zip(after, state, strict=True)
    )

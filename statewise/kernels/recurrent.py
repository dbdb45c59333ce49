"""Elman, GRU and LSTM layers by PyTorch's own op and by our kernels for NVIDIA GPUs, for all three cells alike.

`fused`: the op that PyTorch has for the device (oneDNN or its own on a CPU, cuDNN on CUDA). `persistent`: one kernel
over the whole sequence. `stepped`: one product and one kernel per step.

B batch, T time, I input width, D width, P output width, G gates times D.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from statewise.core import tool
from statewise.kernels import persistent as persistent_kernels
from statewise.kernels import stepped as stepped_kernels
from statewise.kernels.choice import Choice, Implementation, Wish, note, outside
from statewise.kernels.gpu import gpu_of
from statewise.kernels.persistent.plan import Cell

Op = Callable[..., tuple[Tensor, ...]]
OpResult = tuple[Tensor, tuple[Tensor, ...]]

W = TypeVar("W", bound=tuple[Any, ...])
State = tuple[Tensor, ...]
Result = tuple[Tensor, ...]  # outputs, then the parts of the last state
Run = Callable[..., Result]  # (x_BTI, *state, weights, lengths_B)

# cuDNN wants one block of memory and copies our separate matrices into it: a copy of the weights per call,
# against a whole sequence of products with them.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")

_TORCH_OPS: dict[Cell, Op] = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu, "gru": torch.gru, "lstm": torch.lstm}


class Layer(NamedTuple):
    """A layer's weights by the names that all cells share, and its equation with weights of these names."""

    cell: Cell
    equation: Callable[["Layer", Tensor, Any, Tensor | None], Result]
    w_GI: Tensor
    u_GP: Tensor
    b_G: Tensor
    b_u_D: Tensor | None = None  # the GRU's
    projection_PD: Tensor | None = None  # the LSTM's, as are the gains
    gains: tuple[Tensor, ...] = ()

    def zero_state(self, batch: int) -> State:
        zeros_BD = self.u_GP.new_zeros(batch, self.u_GP.shape[1])
        return (zeros_BD, zeros_BD) if self.cell == "lstm" else (zeros_BD,)


def read_vector(
    implementations: Mapping[Implementation, Run],
    chosen: Callable[..., Choice],
    x_BTI: Tensor,
    h_BD: Tensor | None,
    weights: Any,
    lengths_B: Tensor | None,
    wish: Wish,
) -> tuple[Tensor, Tensor]:
    """Outputs and last state of a cell whose state is one vector, by the implementation that is chosen."""
    batch = x_BTI.shape[0]
    weights = as_wide_as(h_BD, weights)
    implementation = chosen(weights, wish=traceable(wish, lengths_B), batch=batch).implementation
    if implementation != "persistent" and h_BD is None:
        h_BD = weights.zero_state(batch)
    y_BTD, after_BD = implementations[implementation](x_BTI, h_BD, weights, lengths_B)
    return y_BTD, after_BD


def as_wide_as(h: Tensor | None, weights: W) -> W:
    """The weights in the state's precision, where theirs is lower: kernels know one precision for both."""
    if h is None or weights[0].dtype.itemsize >= h.dtype.itemsize:
        return weights
    return type(weights)(*(part.to(h.dtype) if isinstance(part, Tensor) else part for part in weights))


def fused(layer: Layer, x_BTI: Tensor, state: State, lengths_B: Tensor | None) -> Result:
    # PyTorch has one bias for the input and one for the state. Only their sum matters, but for the GRU's candidate.
    if layer.b_u_D is None:
        b_state_G = torch.zeros_like(layer.b_G)
    else:
        b_state_G = F.pad(layer.b_u_D, (2 * len(layer.b_u_D), 0))
    flat = [layer.w_GI, layer.u_GP, layer.b_G, b_state_G]
    if layer.projection_PD is not None:
        flat.append(layer.projection_PD)
    y_BTP, after = run_torch_op(_TORCH_OPS[layer.cell], x_BTI, state, flat, lengths_B)
    return y_BTP, *after


def persistent(layer: Layer, x_BTI: Tensor, state: tuple[Tensor | None, ...], lengths_B: Tensor | None) -> Result:
    """A state of zeros may be absent."""

    def equation(tensors: persistent_kernels.Tensors) -> Result:
        return _in_float32(layer, tensors.x_BTI, tensors[1:3], tensors[3:], lengths_B)

    h_BD, c_BD = state if len(state) == 2 else (state[0], None)
    tensors = persistent_kernels.Tensors(x_BTI, h_BD, c_BD, layer.w_GI, layer.u_GP, layer.b_G, layer.b_u_D)
    try:
        return persistent_kernels.run(layer.cell, tensors, lengths_B, equation)
    except persistent_kernels.Unavailable:
        given = tuple(part for part in state if part is not None)
        begin = given if len(given) == len(state) else layer.zero_state(len(x_BTI))
        return fused(layer, x_BTI, begin, lengths_B)


def stepped(layer: Layer, x_BTI: Tensor, state: State, lengths_B: Tensor | None) -> Result:
    """The only one that has layer norm."""

    def equation(tensors: stepped_kernels.Tensors) -> Result:
        return _in_float32(layer, tensors.x_BTI, tensors[1:3], tensors[3:], lengths_B)

    h_BD, c_BD = state if len(state) == 2 else (state[0], None)
    flat = (layer.w_GI, layer.u_GP, layer.b_G, layer.b_u_D)
    tensors = stepped_kernels.Tensors(x_BTI, h_BD, c_BD, *flat, *layer.gains)
    try:
        return stepped_kernels.run(layer.cell, tensors, lengths_B, equation)
    except stepped_kernels.Unavailable:
        other = layer.equation if layer.gains else fused
        return other(layer, x_BTI, state, lengths_B)


def _in_float32(
    layer: Layer,
    x_BTI: Tensor,
    state: Sequence[Tensor | None],
    weights: Sequence[Tensor | None],
    lengths_B: Tensor | None,
) -> Result:
    """The equation of other tensors in place of the layer's own: that of second gradients."""
    w_GI, u_GP, b_G, b_u_D, *gains = (None if weight is None else weight.float() for weight in weights)
    assert w_GI is not None
    assert u_GP is not None
    assert b_G is not None
    present = tuple(gain for gain in gains if gain is not None)
    again = layer._replace(w_GI=w_GI, u_GP=u_GP, b_G=b_G, b_u_D=b_u_D, gains=present)
    begin = tuple(
        zeros if part is None else part.float()
        for part, zeros in zip(state, again.zero_state(len(x_BTI)), strict=False)
    )
    return layer.equation(again, x_BTI.float(), begin, lengths_B)


def implementations(as_layer: Callable[[W], Layer]) -> dict[Implementation, Run]:
    """All three for a kind of weights, as functions of `(x_BTI, *state, weights, lengths_B)`."""

    def of_weights(run: Callable[[Layer, Tensor, Any, Tensor | None], Result]) -> Run:
        def call(x_BTI: Tensor, *rest: Any) -> Result:
            *state, weights, lengths_B = rest
            return run(as_layer(weights), x_BTI, tuple(state), lengths_B)

        return call

    return {"fused": of_weights(fused), "persistent": of_weights(persistent), "stepped": of_weights(stepped)}


# -------------------------------------------------------------------- PyTorch's op, over full rows or ragged ones


def run_torch_op(
    op: Op, x_BTI: Tensor, state: tuple[Tensor, ...], weights: Sequence[Tensor], lengths_B: Tensor | None
) -> OpResult:
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


def _full(op: Op, x_BTI: Tensor, state: tuple[Tensor, ...], weights: Sequence[Tensor]) -> OpResult:
    y_BTD, *after = op(x_BTI, _hx(state), weights, *_options(), True)
    return y_BTD, tuple(new[0].to(old.dtype) for new, old in zip(after, state, strict=True))


def in_pieces(
    full: Callable[[Tensor, tuple[Tensor, ...]], OpResult], x_BTI: Tensor, state: tuple[Tensor, ...], lengths_B: Tensor
) -> OpResult:
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


def _packed(op: Op, x_BTI: Tensor, state: tuple[Tensor, ...], weights: Sequence[Tensor], lengths_B: Tensor) -> OpResult:
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


# -------------------------------------------------------------------- cached choices

# To choose takes longer than a short layer runs on a CPU, or than a kernel takes to launch on a GPU. Errors are not
# cached.
_cache: dict[tuple[object, ...], Choice] = {}


def cached_choice(op: str, choose: Callable[[], Choice], weight: Tensor, variant: object, *, batch: int) -> Choice:
    """`choose()`, or its earlier result. `variant`: all else that the choice depends on."""
    if tool():  # what a compiler reads must not depend on what ran before
        return choose()
    device = weight.device
    key: tuple[object, ...] = (op, variant, device, outside())
    if device.type == "cuda":
        dtype, gpu = persistent_kernels.compute_dtype(weight), gpu_of(device.index or 0)
        alike = dtype is not torch.float32 or stepped_kernels.one_precision()
        key += (batch, weight.shape, dtype, alike, gpu, persistent_kernels.retired(), stepped_kernels.retired())
    choice = _cache.get(key)
    if choice is None:
        choice = _cache[key] = choose()
    else:
        note(op, choice)
    return choice


def traceable(wish: Wish, lengths_B: Tensor | None) -> Wish:
    """PyTorch's recurrences need the lengths of rows as numbers, which no tool that traces has: then the equation."""
    return "naive" if lengths_B is not None and tool() else wish

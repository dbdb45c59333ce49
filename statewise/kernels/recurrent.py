"""Elman, GRU and LSTM layers by PyTorch's own op and by our kernels for NVIDIA GPUs, for all three cells alike.

`fused`: the op that PyTorch has for the device (oneDNN or its own on a CPU, cuDNN on CUDA). `persistent`: one kernel
over the whole sequence. `stepped`: one product and one kernel per step.

B batch, T time, I input width, D width, P output width, G gates times D.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels import persistent as persistent_kernels
from statewise.kernels import stepped as stepped_kernels
from statewise.kernels.choice import Implementation
from statewise.kernels.persistent.plan import Cell
from statewise.kernels.torch_op import Op, run_torch_op

W = TypeVar("W")
State = tuple[Tensor, ...]
Result = tuple[Tensor, ...]  # outputs, then the parts of the last state
Run = Callable[..., Result]  # (x_BTI, *state, weights, lengths_B)

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

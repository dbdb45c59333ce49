"""Elman's recurrence with its own backward, for the CPU: what need not be done step by step is done at once.

Per step remain one product, one bend, and on the way back one slope and one product. The gradient of U is
a single product over all moments, where autograd would add one for each. The derivation is in
`kernels/README.md`.

B batch, T time, I input width, D width.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.elman.naive import Activation, ElmanWeights, elman_step
from statewise.kernels.second_order import differentiable
from statewise.kernels.torch_op import in_pieces


class _Recurrence(torch.autograd.Function):
    """From the input's share of all moments, the first state and U, all states: `h_t = φ(a_t + U h_{t-1})`."""

    @staticmethod
    def forward(ctx: Any, a_TBD: Tensor, h_BD: Tensor, u_DD: Tensor, activation: Activation) -> Tensor:
        bend = torch.tanh_ if activation == "tanh" else torch.relu_
        states_TBD = a_TBD.new_empty(len(a_TBD) + 1, *h_BD.shape)  # the first state stands before the others
        states_TBD[0] = h_BD
        u_T = u_DD.mT.contiguous()
        for t, a_BD in enumerate(a_TBD.unbind()):
            bend(torch.addmm(a_BD, states_TBD[t], u_T, out=states_TBD[t + 1]))
        ctx.save_for_backward(a_TBD, h_BD, u_DD, states_TBD)
        ctx.activation = activation
        return states_TBD[1:]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (dy_TBD,) = gradients
        *inputs, states_TBD = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted: only the equation has one
            a_TBD, h_BD, u_DD = inputs
            return *differentiable(_equation(a_TBD, h_BD, u_DD, ctx.activation), inputs, dy_TBD), None
        u_DD = inputs[2]
        slope = _tanh_slope if ctx.activation == "tanh" else _relu_slope
        da_TBD = torch.empty_like(dy_TBD)
        dh_BD = torch.zeros_like(dy_TBD[0])
        for t in reversed(range(len(dy_TBD))):
            dh_BD += dy_TBD[t]
            slope(dh_BD, states_TBD[t + 1], da_TBD[t])
            torch.mm(da_TBD[t], u_DD, out=dh_BD)
        du_DD = da_TBD.flatten(0, 1).mT @ states_TBD[:-1].flatten(0, 1)
        return da_TBD, dh_BD, du_DD, None


def _equation(a_TBD: Tensor, h_BD: Tensor, u_DD: Tensor, activation: Activation) -> Tensor:
    weights = ElmanWeights(u_DD, u_DD, u_DD[0], activation)  # the input's part is in `a` already
    states = []
    for a_BD in a_TBD.unbind():
        h_BD = elman_step(a_BD, h_BD, weights)
        states.append(h_BD)
    return torch.stack(states)


def _tanh_slope(dh: Tensor, h: Tensor, out: Tensor) -> None:
    torch.ops.aten.tanh_backward.grad_input(dh, h, grad_input=out)


def _relu_slope(dh: Tensor, h: Tensor, out: Tensor) -> None:
    torch.ops.aten.threshold_backward.grad_input(dh, h, 0, grad_input=out)


def elman(x_BTI: Tensor, h_BD: Tensor, weights: ElmanWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    def full(x_BTI: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        u_DD = weights.u_DD
        a_TBD = F.linear(x_BTI.transpose(0, 1), weights.w_DI, weights.b_D).to(u_DD.dtype)
        with torch.autocast("cpu", enabled=False):  # the loop stays in the weights' own precision
            states_TBD: Tensor = _Recurrence.apply(a_TBD, state[0], u_DD, weights.activation)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return states_TBD.transpose(0, 1), (states_TBD[-1],)

    y_BTD, (h_BD,) = full(x_BTI, (h_BD,)) if lengths_B is None else in_pieces(full, x_BTI, (h_BD,), lengths_B)
    return y_BTD, h_BD

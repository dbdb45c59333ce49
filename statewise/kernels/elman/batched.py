"""Elman's recurrence with its own backward, for the CPU: what need not be done step by step is done at once.

Per step remain one product, one bend, and on the way back one slope and one product. The gradient of U is
a single product over all moments, where autograd would add one for each. The derivation is in
`kernels/README.md`.

B batch, T time, I input width, D width, N moments of all rows.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.elman.naive import Activation, ElmanWeights, elman_step
from statewise.kernels.moments import Moments, Rows, begin_with, states_before
from statewise.kernels.second_order import differentiable


class _Recurrence(torch.autograd.Function):
    """From the input's share of all moments, the first state and U, all states: `h_t = φ(a_t + U h_{t-1})`."""

    @staticmethod
    def forward(ctx: Any, a_ND: Tensor, h_BD: Tensor, u_DD: Tensor, activation: Activation, rows: Rows) -> Tensor:
        bend = torch.tanh_ if activation == "tanh" else torch.relu_
        states_ND, before, states = begin_with(h_BD, len(a_ND), rows)
        u_T = u_DD.mT
        for a_BD, before_BD, state_BD in zip(a_ND.split_with_sizes(rows), before, states, strict=True):
            bend(torch.addmm(a_BD, before_BD, u_T, out=state_BD))
        ctx.save_for_backward(a_ND, h_BD, u_DD, states_ND)
        ctx.activation, ctx.rows = activation, rows
        return states_ND[rows[0] :]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (dy_ND,) = gradients
        *inputs, states_ND = ctx.saved_tensors
        a_ND, h_BD, u_DD = inputs
        rows: Rows = ctx.rows
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted: only the equation has one
            again = differentiable(_equation(a_ND, h_BD, u_DD, ctx.activation, rows), inputs, dy_ND)
            return *again, None, None
        slope = _tanh_slope if ctx.activation == "tanh" else _relu_slope
        da_ND = torch.empty_like(dy_ND, memory_format=torch.contiguous_format)
        dh_BD = torch.zeros_like(h_BD)
        states, dy, da = (
            states_ND[rows[0] :].split_with_sizes(rows),
            dy_ND.split_with_sizes(rows),
            da_ND.split_with_sizes(rows),
        )
        for t in reversed(range(len(rows))):
            dh = dh_BD[: rows[t]].add_(dy[t])
            slope(dh, states[t], da[t])
            torch.mm(da[t], u_DD, out=dh)
        return da_ND, dh_BD, da_ND.mT @ states_before(states_ND, rows), None, None


def _equation(a_ND: Tensor, h_BD: Tensor, u_DD: Tensor, activation: Activation, rows: Rows) -> Tensor:
    weights = ElmanWeights(u_DD, u_DD, u_DD[0], activation)  # the input's part is in `a` already
    states = []
    for a_BD in a_ND.split_with_sizes(rows):
        h_BD = elman_step(a_BD, h_BD[: len(a_BD)], weights)
        states.append(h_BD)
    return torch.cat(states)


def _tanh_slope(dh: Tensor, h: Tensor, out: Tensor) -> None:
    torch.ops.aten.tanh_backward.grad_input(dh, h, grad_input=out)


def _relu_slope(dh: Tensor, h: Tensor, out: Tensor) -> None:
    torch.ops.aten.threshold_backward.grad_input(dh, h, 0, grad_input=out)


def elman_moments(x_NI: Tensor, h_BD: Tensor, weights: ElmanWeights, rows: Rows) -> Tensor:
    """All states, where rows lie as `kernels/moments.py` says and at least one moment is read."""
    a_ND = F.linear(x_NI, weights.w_DI, weights.b_D).to(weights.u_DD.dtype)
    with torch.autocast("cpu", enabled=False):  # the loop stays in the weights' own precision
        states_ND: Tensor = _Recurrence.apply(  # type: ignore[no-untyped-call]  # torch leaves it untyped
            a_ND, h_BD, weights.u_DD, weights.activation, rows
        )
    return states_ND


def elman(x_BTI: Tensor, h_BD: Tensor, weights: ElmanWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    moments = Moments.of(x_BTI, lengths_B)
    if not moments.rows:
        return x_BTI.new_zeros(*moments.shape, h_BD.shape[1]), h_BD
    return moments.restored(elman_moments(moments.x_NI, moments.sorted(h_BD), weights, moments.rows), h_BD)

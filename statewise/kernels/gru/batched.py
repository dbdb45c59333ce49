"""The GRU with its own backward, for the CPU: what need not be done step by step is done at once.

Per step remain one product and the gates, and on the way back one product and the slopes. The gradients
of U and of its bias are single products over all moments. The derivation is in `kernels/README.md`.

B batch, T time, I input width, D width, G three times D, N moments of all rows.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.gru.naive import GRUWeights, gru_step
from statewise.kernels.moments import IN_CACHE, Moments, Rows, begin_with, states_before
from statewise.kernels.second_order import differentiable


class _Recurrence(torch.autograd.Function):
    """From the input's share of all moments, the first state, U and the candidate's inner bias, all states."""

    @staticmethod
    def forward(ctx: Any, a_NG: Tensor, h_BD: Tensor, u_GD: Tensor, b_u_D: Tensor, rows: Rows) -> Tensor:
        width = h_BD.shape[1]
        states_ND, before, states = begin_with(h_BD, len(a_NG), rows)
        n_ND = a_NG.new_empty(len(a_NG), width)
        gates_NG = torch.empty_like(a_NG)  # r beside z beside U_n h + b_u, before the reset
        r_ND, z_ND, inner_ND = gates_NG.chunk(3, dim=1)
        parts = (a_NG[:, : 2 * width], a_NG[:, 2 * width :], gates_NG, gates_NG[:, : 2 * width], r_ND, z_ND, inner_ND)
        b_G, u_T = F.pad(b_u_D, (2 * width, 0)), u_GD.mT
        moments = zip(
            before, states, n_ND.split_with_sizes(rows), *(part.split_with_sizes(rows) for part in parts), strict=True
        )
        for before_BD, state_BD, n_BD, a_gates, a_n_BD, product_BG, gates, r_BD, z_BD, inner_BD in moments:
            torch.addmm(b_G, before_BD, u_T, out=product_BG)
            gates.add_(a_gates).sigmoid_()
            torch.addcmul(a_n_BD, r_BD, inner_BD, out=n_BD).tanh_()
            torch.lerp(n_BD, before_BD, z_BD, out=state_BD)
        ctx.save_for_backward(a_NG, h_BD, u_GD, b_u_D, states_ND, gates_NG, n_ND)
        ctx.rows = rows
        return states_ND[rows[0] :]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (dy_ND,) = gradients
        *inputs, states_ND, gates_NG, n_ND = ctx.saved_tensors
        a_NG, h_BD, u_GD, b_u_D = inputs
        rows: Rows = ctx.rows
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted: only the equation has one
            return *differentiable(_equation(a_NG, h_BD, u_GD, b_u_D, rows), inputs, dy_ND), None
        before_ND = states_before(states_ND, rows)
        # Into U_n h, r, z and the candidate, in this order: the first three go back through U, the last three to `a`.
        into_N4D = _slopes(gates_NG, n_ND, before_ND)
        width = h_BD.shape[1]
        through_NG = into_N4D[:, :3].flatten(1)
        u_turned_GD = u_GD.roll(width, 0)
        dh_BD = torch.zeros_like(h_BD)
        z, dy, into, through = (
            moments.split_with_sizes(rows) for moments in (gates_NG[:, width : 2 * width], dy_ND, into_N4D, through_NG)
        )
        for t in reversed(range(len(rows))):
            dh = dh_BD[: rows[t]].add_(dy[t])
            into[t].mul_(dh[:, None])
            dh.mul_(z[t]).addmm_(through[t], u_turned_GD)
        du_GD = (through_NG.mT @ before_ND).roll(-width, 0)
        return into_N4D[:, 1:].flatten(1), dh_BD, du_GD, into_N4D[:, 0].sum(0), None


def _slopes(gates_NG: Tensor, n_ND: Tensor, before_ND: Tensor) -> Tensor:
    """What does not depend on the gradient from the future, for all moments."""
    count, width = n_ND.shape
    into_N4D = n_ND.new_empty(count, 4, width)
    sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
    parts = -(-count * width // IN_CACHE)
    all_parts = (gates_NG.chunk(parts), n_ND.chunk(parts), before_ND.chunk(parts), into_N4D.chunk(parts))
    for gates_CG, n_CD, before_CD, into_C4D in zip(*all_parts, strict=True):
        r_CD, z_CD, inner_CD = gates_CG.chunk(3, dim=1)
        into_inner, into_r, into_z, into_n = into_C4D.unbind(1)
        torch.neg(z_CD, out=into_inner).add_(1)
        torch.ops.aten.tanh_backward.grad_input(into_inner, n_CD, grad_input=into_n)
        sigmoid_backward(torch.sub(before_CD, n_CD, out=into_z), z_CD, grad_input=into_z)
        sigmoid_backward(torch.mul(into_n, inner_CD, out=into_r), r_CD, grad_input=into_r)
        torch.mul(into_n, r_CD, out=into_inner)
    return into_N4D


def _equation(a_NG: Tensor, h_BD: Tensor, u_GD: Tensor, b_u_D: Tensor, rows: Rows) -> Tensor:
    weights = GRUWeights(u_GD, u_GD, b_u_D, b_u_D)  # the input's part is in `a` already
    states = []
    for a_BG in a_NG.split_with_sizes(rows):
        h_BD = gru_step(a_BG, h_BD[: len(a_BG)], weights)
        states.append(h_BD)
    return torch.cat(states)


def gru_moments(x_NI: Tensor, h_BD: Tensor, weights: GRUWeights, rows: Rows) -> Tensor:
    """All states, where rows lie as `kernels/moments.py` says and at least one moment is read."""
    a_NG = F.linear(x_NI, weights.w_GI, weights.b_G).to(weights.u_GD.dtype)
    with torch.autocast("cpu", enabled=False):  # the loop stays in the weights' own precision
        states_ND: Tensor = _Recurrence.apply(  # type: ignore[no-untyped-call]  # torch leaves it untyped
            a_NG, h_BD, weights.u_GD, weights.b_u_D, rows
        )
    return states_ND


def gru(x_BTI: Tensor, h_BD: Tensor, weights: GRUWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    moments = Moments.of(x_BTI, lengths_B)
    if not moments.rows:
        return x_BTI.new_zeros(*moments.shape, h_BD.shape[1]), h_BD
    return moments.restored(gru_moments(moments.x_NI, moments.sorted(h_BD), weights, moments.rows), h_BD)

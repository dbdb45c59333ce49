"""The GRU with its own backward, for the CPU: what need not be done step by step is done at once.

Per step remain one product and the gates, and on the way back one product and the slopes. The gradients
of both matrices and of the biases are single products over all time steps. The derivation is in `kernels/README.md`.

B batch, T time, I input width, D width, G three times D, N time steps of all rows, C those that fit into the cache.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.cpu import by_expm1, tanh_of_half_, threads_for
from statewise.kernels.gradients import again, wants_equation
from statewise.kernels.gru.naive import GRUWeights, gru_step
from statewise.kernels.packed_sequence import IN_CACHE, Rows, before_and_after, begin_with, read_packed, states_before

# Numbers up to which a matrix that is read column after column was measured to be the faster for being turned.
_TURNED = 1 << 18


class _Recurrence(torch.autograd.Function):
    """From the inputs of all time steps, the first state and the weights, all states."""

    @staticmethod
    def forward(
        ctx: Any, x_NI: Tensor, h_BD: Tensor, w_GI: Tensor, u_GD: Tensor, b_G: Tensor, b_u_D: Tensor, rows: Rows
    ) -> Tensor:
        width = h_BD.shape[1]
        states_ND = begin_with(h_BD, len(x_NI), rows)
        # U_n h + b_u before the reset, r, z, n: the first three wait for U h beside each other, the last three for W x.
        parts_N4D = x_NI.new_empty(len(x_NI), 4, width)
        parts_N4D[:, 0] = b_u_D
        fast = by_expm1(rows[0] * width, x_NI.dtype)
        factor = 2 if fast else 1
        gates_N, n_ND = parts_N4D[:, 1:3].flatten(1), parts_N4D[:, 3]
        torch.addmm(b_G[: 2 * width], x_NI, w_GI[: 2 * width].mT, out=gates_N)
        torch.addmm(b_G[2 * width :], x_NI, w_GI[2 * width :].mT, beta=factor, alpha=factor, out=n_ND)
        u_DG = u_GD.roll(width, 0).mT
        if u_DG.numel() <= _TURNED:
            u_DG = u_DG.contiguous()
        one = x_NI.new_tensor(1.0)
        views = (parts_N4D[:, :3].flatten(1), gates_N, *parts_N4D.unbind(1))
        steps = zip(before_and_after(states_ND, rows), *(view.split_with_sizes(rows) for view in views), strict=True)
        with threads_for(rows[0] * u_GD.numel()):
            for (before_BD, after_BD), waiting_BG, gates_B, inner_BD, r_BD, z_BD, n_BD in steps:
                waiting_BG.addmm_(before_BD, u_DG)
                gates_B.sigmoid_()
                n_BD.addcmul_(r_BD, inner_BD, value=factor)
                if fast:
                    tanh_of_half_(n_BD, one)
                else:
                    n_BD.tanh_()
                torch.lerp(n_BD, before_BD, z_BD, out=after_BD)
        ctx.save_for_backward(x_NI, h_BD, w_GI, u_GD, b_G, b_u_D, states_ND, parts_N4D)
        ctx.rows = rows
        return states_ND[rows[0] :]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (dy_ND,) = gradients
        *inputs, states_ND, parts_N4D = ctx.saved_tensors
        x_NI, h_BD, w_GI, u_GD, _, _ = inputs
        rows: Rows = ctx.rows
        if wants_equation(dy_ND):
            return *again(lambda: (_equation(inputs, rows),), inputs, gradients), None
        width = h_BD.shape[1]
        before_ND = states_before(states_ND, rows)
        # Into U_n h, r, z and the candidate, in this order: the first three go back through U, the last three to W x.
        into_N4D = _slopes(parts_N4D, before_ND)
        through_NG, da_NG = into_N4D[:, :3].flatten(1), into_N4D[:, 1:].flatten(1)
        u_turned_GD = u_GD.roll(width, 0)
        # Room for the gradients of all states; each is complete when the time step after it has been gone through.
        dh_ND = begin_with(torch.zeros_like(h_BD), len(dy_ND), rows)
        dh_ND[rows[0] :] = dy_ND

        views = (dh_ND[rows[0] :, None], into_N4D, through_NG, parts_N4D[:, 2])
        steps = zip(before_and_after(dh_ND, rows), *(view.split_with_sizes(rows) for view in views), strict=True)
        with threads_for(rows[0] * u_GD.numel()):
            for (dh_before_BD, dh_BD), dh_B1D, into_B4D, through_BG, z_BD in reversed(list(steps)):
                into_B4D.mul_(dh_B1D)
                dh_before_BD.addcmul_(dh_BD, z_BD).addmm_(through_BG, u_turned_GD)
        first_BD = torch.zeros_like(h_BD)
        first_BD[: rows[0]] = dh_ND[: rows[0]]
        wanted_x, _, wanted_w, wanted_u, *_ = ctx.needs_input_grad
        biases_4D = into_N4D.sum(0)
        return (
            da_NG @ w_GI if wanted_x else None,
            first_BD,
            da_NG.mT @ x_NI if wanted_w else None,
            (through_NG.mT @ before_ND).roll(-width, 0) if wanted_u else None,
            biases_4D[1:].flatten(),
            biases_4D[0],
            None,
        )


def _slopes(parts_N4D: Tensor, before_ND: Tensor) -> Tensor:
    """What does not depend on the gradient from the future, for all time steps."""
    into_N4D = torch.empty_like(parts_N4D)
    one = parts_N4D.new_tensor(1.0)
    tanh_backward = torch.ops.aten.tanh_backward.grad_input
    sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
    blocks = -(-before_ND.numel() // IN_CACHE)
    all_blocks = (steps.chunk(blocks) for steps in (parts_N4D, before_ND, into_N4D))
    for parts_C4D, before_CD, into_C4D in zip(*all_blocks, strict=True):
        inner_CD, r_CD, z_CD, n_CD = parts_C4D.unbind(1)
        into_inner, into_r, into_z, into_n = into_C4D.unbind(1)
        tanh_backward(torch.sub(one, z_CD, out=into_inner), n_CD, grad_input=into_n)
        sigmoid_backward(torch.sub(before_CD, n_CD, out=into_z), z_CD, grad_input=into_z)
        sigmoid_backward(torch.mul(into_n, inner_CD, out=into_r), r_CD, grad_input=into_r)
        torch.mul(into_n, r_CD, out=into_inner)
    return into_N4D


def _equation(inputs: Sequence[Tensor], rows: Rows) -> Tensor:
    x_NI, h_BD, w_GI, u_GD, b_G, b_u_D = inputs
    weights = GRUWeights(w_GI, u_GD, b_G, b_u_D)
    states = []
    for a_BG in F.linear(x_NI, w_GI, b_G).split_with_sizes(rows):
        h_BD = gru_step(a_BG, h_BD[: len(a_BG)], weights)
        states.append(h_BD)
    return torch.cat(states)


def gru_packed(x_NI: Tensor, h_BD: Tensor, weights: GRUWeights, rows: Rows) -> Tensor:
    """All states, where rows lie as `kernels/packed_sequence.py` says and at least one time step is read.

    Autocast changes nothing here: the whole layer stays in the weights' own precision.
    """
    with torch.autocast("cpu", enabled=False):
        states_ND: Tensor = _Recurrence.apply(  # type: ignore[no-untyped-call]  # torch leaves it untyped
            x_NI.to(weights.u_GD.dtype), h_BD, weights.w_GI, weights.u_GD, weights.b_G, weights.b_u_D, rows
        )
    return states_ND


def gru(x_BTI: Tensor, h_BD: Tensor, weights: GRUWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    return read_packed(gru_packed, x_BTI, h_BD, weights, lengths_B)

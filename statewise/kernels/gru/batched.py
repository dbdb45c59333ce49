"""The GRU with its own backward, for the CPU: what need not be done step by step is done at once.

Per step remain one product and the gates, and on the way back their slopes and one product. The gradients
of U and of its bias are single products over all moments. The derivation is in `kernels/README.md`.

B batch, T time, I input width, D width, G three times D.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.gru.naive import GRUWeights, gru_step
from statewise.kernels.second_order import differentiable
from statewise.kernels.torch_op import in_pieces


class _Recurrence(torch.autograd.Function):
    """From the input's share of all moments, the first state, U and the candidate's inner bias, all states."""

    @staticmethod
    def forward(ctx: Any, a_TBG: Tensor, h_BD: Tensor, u_GD: Tensor, b_u_D: Tensor) -> Tensor:
        time, batch, width = len(a_TBG), *h_BD.shape
        states_TBD = a_TBG.new_empty(time + 1, batch, width)
        states_TBD[0] = h_BD
        gates_TBF = a_TBG.new_empty(time, batch, 2 * width)  # r beside z
        inner_TBD = a_TBG.new_empty(time, batch, width)  # U_n h + b_u, before the reset
        n_TBD = a_TBG.new_empty(time, batch, width)
        u_gates_T, u_n_T = u_GD[: 2 * width].mT.contiguous(), u_GD[2 * width :].mT.contiguous()
        for t in range(time):
            before_BD, gates_BF, n_BD = states_TBD[t], gates_TBF[t], n_TBD[t]
            torch.addmm(a_TBG[t, :, : 2 * width], before_BD, u_gates_T, out=gates_BF).sigmoid_()
            torch.addmm(b_u_D, before_BD, u_n_T, out=inner_TBD[t])
            torch.addcmul(a_TBG[t, :, 2 * width :], gates_BF[:, :width], inner_TBD[t], out=n_BD).tanh_()
            torch.lerp(n_BD, before_BD, gates_BF[:, width:], out=states_TBD[t + 1])
        ctx.save_for_backward(a_TBG, h_BD, u_GD, b_u_D, states_TBD, gates_TBF, inner_TBD, n_TBD)
        return states_TBD[1:]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (dy_TBD,) = gradients
        *inputs, states_TBD, gates_TBF, inner_TBD, n_TBD = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted: only the equation has one
            return differentiable(_equation(*inputs), inputs, dy_TBD)
        u_GD = inputs[2]
        time, batch, width = dy_TBD.shape
        r_TBD, z_TBD = gates_TBF[:, :, :width], gates_TBF[:, :, width:]
        # Everything that does not depend on the gradient from the future, for all moments.
        dn_TBD = (1 - z_TBD).mul_(n_TBD.square().neg_().add_(1))
        dz_TBD = (states_TBD[:-1] - n_TBD).mul_(z_TBD).mul_(1 - z_TBD)
        dr_TBD = (inner_TBD * r_TBD).mul_(1 - r_TBD)
        da_n_TBD = dy_TBD.new_empty(time, batch, width)  # into the candidate
        du_TBG = dy_TBD.new_empty(time, batch, 3 * width)  # into U h
        dh_BD = torch.zeros_like(dy_TBD[0])
        for t in reversed(range(time)):
            dh_BD += dy_TBD[t]
            da_n_BD, du_BG = da_n_TBD[t], du_TBG[t]
            torch.mul(dh_BD, dn_TBD[t], out=da_n_BD)
            torch.mul(da_n_BD, dr_TBD[t], out=du_BG[:, :width])
            torch.mul(dh_BD, dz_TBD[t], out=du_BG[:, width : 2 * width])
            torch.mul(da_n_BD, r_TBD[t], out=du_BG[:, 2 * width :])
            dh_BD.mul_(z_TBD[t]).addmm_(du_BG, u_GD)
        flat_NG = du_TBG.flatten(0, 1)
        du_GD = flat_NG.mT @ states_TBD[:-1].flatten(0, 1)
        # Into `a`, r and z go as into U h; the candidate's part there has not passed the reset.
        da_TBG = torch.cat([du_TBG[:, :, : 2 * width], da_n_TBD], dim=-1)
        return da_TBG, dh_BD, du_GD, flat_NG[:, 2 * width :].sum(0)


def _equation(a_TBG: Tensor, h_BD: Tensor, u_GD: Tensor, b_u_D: Tensor) -> Tensor:
    weights = GRUWeights(u_GD, u_GD, b_u_D, b_u_D)  # the input's part is in `a` already
    states = []
    for a_BG in a_TBG.unbind():
        h_BD = gru_step(a_BG, h_BD, weights)
        states.append(h_BD)
    return torch.stack(states)


def gru(x_BTI: Tensor, h_BD: Tensor, weights: GRUWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    def full(x_BTI: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        u_GD = weights.u_GD
        a_TBG = F.linear(x_BTI.transpose(0, 1), weights.w_GI, weights.b_G).to(u_GD.dtype)
        with torch.autocast("cpu", enabled=False):  # the loop stays in the weights' own precision
            states_TBD: Tensor = _Recurrence.apply(a_TBG, state[0], u_GD, weights.b_u_D)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return states_TBD.transpose(0, 1), (states_TBD[-1],)

    y_BTD, (h_BD,) = full(x_BTI, (h_BD,)) if lengths_B is None else in_pieces(full, x_BTI, (h_BD,), lengths_B)
    return y_BTD, h_BD

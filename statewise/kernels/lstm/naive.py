"""The LSTM, written out, with the variants people ask for. Gate rows stand in the order i, f, g, o.

    i = σ(W_i x + U_i h + p_i·c  + b_i)      what enters          c' = f·c + i·g
    f = σ(W_f x + U_f h + p_f·c  + b_f)      what stays           h' = R (o · tanh c')
    g = tanh(W_g x + U_g h + b_g)            the candidate
    o = σ(W_o x + U_o h + p_o·c' + b_o)      what shows

p (peepholes) and R (projection) are absent by default; coupled gates set i = 1 - f and have no rows
for i; layer norm normalises W x, U h and the cell that is shown (Ba et al. 2016).

B batch, T time, I input width, D width, P output width (D without projection), G gates times D.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import observe, unroll
from statewise.kernels.zoneout import zoneout


class LSTMNorm(NamedTuple):
    """Gains on W x and on U h (their bias is the gates' own), gain and bias on the cell that is shown."""

    input_G: Tensor
    recurrent_G: Tensor
    cell_D: Tensor
    cell_bias_D: Tensor


class LSTMWeights(NamedTuple):
    w_GI: Tensor
    u_GP: Tensor
    b_G: Tensor
    peephole: Tensor | None = None  # [3, D] for i, f, o; [2, D] for f, o when coupled
    projection_PD: Tensor | None = None
    norm: LSTMNorm | None = None
    coupled: bool = False
    zoneout: float = 0.0
    training: bool = False

    def zero_state(self, batch: int) -> tuple[Tensor, Tensor]:
        """The state before anything was read: h [B, P] and c [B, D]."""
        width = len(self.w_GI) // (3 if self.coupled else 4)
        return self.u_GP.new_zeros(batch, self.u_GP.shape[1]), self.u_GP.new_zeros(batch, width)


def normalise(a_BG: Tensor, gain_G: Tensor) -> Tensor:
    return F.layer_norm(a_BG, gain_G.shape, gain_G)


def project_input(x: Tensor, weights: LSTMWeights) -> Tensor:
    """What the input gives to the gates; it does not depend on time, so all of it is one product."""
    if weights.norm is None:
        return F.linear(x, weights.w_GI, weights.b_G)
    return normalise(F.linear(x, weights.w_GI), weights.norm.input_G) + weights.b_G


def lstm_step(a_BG: Tensor, h_BP: Tensor, c_BD: Tensor, weights: LSTMWeights) -> tuple[Tensor, Tensor]:
    """One time step, from the projected input."""
    recurrent_BG = h_BP @ weights.u_GP.mT
    if weights.norm is not None:
        recurrent_BG = normalise(recurrent_BG, weights.norm.recurrent_G)
    a_BG = a_BG + recurrent_BG

    peephole = None if weights.peephole is None else iter(weights.peephole)
    i_BD = None
    if weights.coupled:
        f_BD, g_BD, o_BD = a_BG.chunk(3, dim=-1)
    else:
        i_BD, f_BD, g_BD, o_BD = a_BG.chunk(4, dim=-1)
        if peephole is not None:
            i_BD = i_BD + next(peephole) * c_BD
    if peephole is not None:
        f_BD = f_BD + next(peephole) * c_BD
    f_BD = observe("lstm.forget_gate", torch.sigmoid(f_BD))
    i_BD = observe("lstm.input_gate", 1 - f_BD if i_BD is None else torch.sigmoid(i_BD))
    g_BD = observe("lstm.candidate", torch.tanh(g_BD))
    fresh_c_BD = f_BD * c_BD + i_BD * g_BD
    new_c_BD = zoneout(c_BD, fresh_c_BD, rate=weights.zoneout, training=weights.training)
    new_c_BD = observe("lstm.cell", new_c_BD)
    # Krueger et al. show the cell as it would be without zoneout; their noise is on what is carried.
    shown_BD = fresh_c_BD if weights.zoneout else new_c_BD

    if peephole is not None:
        o_BD = o_BD + next(peephole) * shown_BD
    o_BD = observe("lstm.output_gate", torch.sigmoid(o_BD))
    if weights.norm is not None:
        shown_BD = F.layer_norm(shown_BD, shown_BD.shape[-1:], weights.norm.cell_D, weights.norm.cell_bias_D)
    new_h_BP = o_BD * torch.tanh(shown_BD)
    if weights.projection_PD is not None:
        new_h_BP = new_h_BP @ weights.projection_PD.mT
    new_h_BP = zoneout(h_BP, new_h_BP, rate=weights.zoneout, training=weights.training)
    return observe("lstm.h", new_h_BP), new_c_BD


def lstm(
    x_BTI: Tensor, h_BP: Tensor, c_BD: Tensor, weights: LSTMWeights, lengths_B: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    def step(a_BG: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h_BP, c_BD = lstm_step(a_BG, *state, weights)
        return h_BP, (h_BP, c_BD)

    y_BTP, (h_BP, c_BD) = unroll(step, project_input(x_BTI, weights), (h_BP, c_BD), lengths_B)
    return y_BTP, h_BP, c_BD

"""The GRU, written out, with both published places of the reset gate. Gate rows stand in the order r, z, n.

    r = σ(W_r x + U_r h + b_r)               after:   n = tanh(W_n x + b_n + r · (U_n h + b_u))
    z = σ(W_z x + U_z h + b_z)               before:  n = tanh(W_n x + b_n + U_n (r · h))
    h' = (1 - z) · n + z · h

`before` is Cho et al. 2014; `after` is cuDNN's and torch.nn's, with one recurrent product a step.

B batch, T time, I input width, D width, G three times D.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import observe, unroll_vector
from statewise.kernels.zoneout import zoneout


class GRUWeights(NamedTuple):
    w_GI: Tensor
    u_GD: Tensor
    b_G: Tensor
    b_u_D: Tensor | None  # the candidate's bias inside the reset; None places the reset before the product
    zoneout: float = 0.0
    training: bool = False

    def zero_state(self, batch: int) -> Tensor:
        """The state before anything was read."""
        return self.u_GD.new_zeros(batch, self.u_GD.shape[1])


def gru_step(a_BG: Tensor, h_BD: Tensor, weights: GRUWeights) -> Tensor:
    """One time step, from the projected input `a = W x + b`."""
    width = h_BD.shape[-1]
    a_gates, a_n_BD = a_BG[:, : 2 * width], a_BG[:, 2 * width :]
    u_gates, u_n_DD = weights.u_GD[: 2 * width], weights.u_GD[2 * width :]
    r_BD, z_BD = torch.sigmoid(a_gates + h_BD @ u_gates.mT).chunk(2, dim=-1)
    r_BD, z_BD = observe("gru.reset_gate", r_BD), observe("gru.update_gate", z_BD)
    if weights.b_u_D is not None:
        n_BD = torch.tanh(a_n_BD + r_BD * F.linear(h_BD, u_n_DD, weights.b_u_D))
    else:
        n_BD = torch.tanh(a_n_BD + (r_BD * h_BD) @ u_n_DD.mT)
    n_BD = observe("gru.candidate", n_BD)
    new_BD = (1 - z_BD) * n_BD + z_BD * h_BD
    return observe("gru.h", zoneout(h_BD, new_BD, rate=weights.zoneout, training=weights.training))


def gru(x_BTI: Tensor, h_BD: Tensor, weights: GRUWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    return unroll_vector(
        lambda a_BG, h_BD: gru_step(a_BG, h_BD, weights), F.linear(x_BTI, weights.w_GI, weights.b_G), h_BD, lengths_B
    )

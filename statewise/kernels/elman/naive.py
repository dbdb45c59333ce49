"""Elman's recurrence, written out: `h_t = φ(W x_t + U h_{t-1} + b)`.

B batch, T time, I input width, D width.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import observe, unroll_vector
from statewise.kernels.zoneout import zoneout

Activation = Literal["tanh", "relu"]


class ElmanWeights(NamedTuple):
    w_DI: Tensor
    u_DD: Tensor
    b_D: Tensor
    activation: Activation = "tanh"
    zoneout: float = 0.0
    training: bool = False

    def zero_state(self, batch: int) -> Tensor:
        """The state before anything was read."""
        return self.u_DD.new_zeros(batch, self.u_DD.shape[1])


def elman_step(a_BD: Tensor, h_BD: Tensor, weights: ElmanWeights) -> Tensor:
    """One time step, from the projected input `a = W x + b`."""
    phi = torch.tanh if weights.activation == "tanh" else torch.relu
    new_BD = phi(a_BD + h_BD @ weights.u_DD.mT)
    return observe("elman.h", zoneout(h_BD, new_BD, rate=weights.zoneout, training=weights.training))


def elman(x_BTI: Tensor, h_BD: Tensor, weights: ElmanWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    a_BTD = F.linear(x_BTI, weights.w_DI, weights.b_D)
    return unroll_vector(lambda a_BD, h_BD: elman_step(a_BD, h_BD, weights), a_BTD, h_BD, lengths_B)

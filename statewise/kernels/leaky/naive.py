"""Leaky integration of Elman's recurrence, written out.

    n_t = φ(W x_t + U h_{t-1} + b)               the candidate
    h_t = α · h_{t-1} + (1 - α) · n_t            a share α of what was held stays, unit by unit

B batch, T time, I input width, D width.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import observe, unroll_vector
from statewise.kernels.elman import Activation


class LeakyWeights(NamedTuple):
    w_DI: Tensor
    u_DD: Tensor
    b_D: Tensor
    alpha: Tensor  # [D], or one number for all units
    activation: Activation = "tanh"


def leaky_step(a_BD: Tensor, h_BD: Tensor, weights: LeakyWeights) -> Tensor:
    """One time step, from the projected input `a = W x + b`."""
    phi = torch.tanh if weights.activation == "tanh" else torch.relu
    n_BD = observe("leaky.candidate", phi(a_BD + h_BD @ weights.u_DD.mT))
    return observe("leaky.h", weights.alpha * h_BD + (1 - weights.alpha) * n_BD)


def leaky(x_BTI: Tensor, h_BD: Tensor, weights: LeakyWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    a_BTD = F.linear(x_BTI, weights.w_DI, weights.b_D)
    return unroll_vector(lambda a_BD, h_BD: leaky_step(a_BD, h_BD, weights), a_BTD, h_BD, lengths_B)

"""A transition of several layers from one state to the next, written out.

    z_1 = φ(a_t + U_1 h_{t-1})                       a = W x + b_1 is the projected input
    z_k = φ(U_k z_{k-1} + b_k)                       k = 2 ... L - 1
    h_t = φ(U_L z_{L-1} + b_L + S h_{t-1})           S, the skip, may be absent

With one layer there is nothing to skip: `h_t = φ(a_t + U_1 h_{t-1})`, Elman's recurrence.

B batch, T time, D width, L layers of the transition.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import observe, unroll_vector
from statewise.kernels.elman import Activation


class TransitionWeights(NamedTuple):
    u_LDD: Tensor
    b_KD: Tensor  # K = L - 1: the first layer's bias came with the input
    skip_DD: Tensor | None = None
    activation: Activation = "tanh"


def transition_step(a_BD: Tensor, h_BD: Tensor, weights: TransitionWeights) -> Tensor:
    """One time step, from the projected input."""
    phi = torch.tanh if weights.activation == "tanh" else torch.relu
    first_DD, *others = weights.u_LDD.unbind()
    z_BD = phi(a_BD + h_BD @ first_DD.mT)
    for number, (u_DD, b_D) in enumerate(zip(others, weights.b_KD.unbind(), strict=True), start=1):
        z_BD = observe(f"deep_rnn.transition.{number}", z_BD)
        last = number == len(others)
        skipped_BD = h_BD @ weights.skip_DD.mT if last and weights.skip_DD is not None else 0.0
        z_BD = phi(F.linear(z_BD, u_DD, b_D) + skipped_BD)
    return observe("deep_rnn.h", z_BD)


def transition(
    a_BTD: Tensor, h_BD: Tensor, weights: TransitionWeights, lengths_B: Tensor | None
) -> tuple[Tensor, Tensor]:
    return unroll_vector(lambda a_BD, h_BD: transition_step(a_BD, h_BD, weights), a_BTD, h_BD, lengths_B)

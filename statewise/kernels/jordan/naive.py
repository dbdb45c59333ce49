"""The output-recurrent network, written out: what comes back is the output, and nothing else.

    h_t = φ(W x_t + R o_{t-1} + b)
    o_t = V h_t + c

B batch, T time, I input width, D hidden width, O output width.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import observe, unroll_vector
from statewise.kernels.elman import Activation


class JordanWeights(NamedTuple):
    w_DI: Tensor
    r_DO: Tensor
    b_D: Tensor
    v_OD: Tensor
    c_O: Tensor
    activation: Activation = "tanh"


def hidden(a: Tensor, activation: Activation) -> Tensor:
    return observe("jordan.h", torch.tanh(a) if activation == "tanh" else torch.relu(a))


def returned(logits: Tensor) -> Tensor:
    """What comes back where the outputs are logits: the distribution."""
    return observe("jordan.output", logits.softmax(-1))


def jordan_step(a: Tensor, last_o: Tensor, weights: JordanWeights) -> Tensor:
    """From the projected input `a = W x + b` and the outputs before: one time step, or all of them at once."""
    h = hidden(a + last_o @ weights.r_DO.mT, weights.activation)
    return observe("jordan.output", F.linear(h, weights.v_OD, weights.c_O))


def jordan(x_BTI: Tensor, o_BO: Tensor, weights: JordanWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """Free running: each output is fed back."""
    a_BTD = F.linear(x_BTI, weights.w_DI, weights.b_D)
    return unroll_vector(lambda a_BD, o_BO: jordan_step(a_BD, o_BO, weights), a_BTD, o_BO, lengths_B)


def jordan_forced(x_BTI: Tensor, truth_BTO: Tensor, o_BO: Tensor, weights: JordanWeights) -> Tensor:
    """Teacher forcing: the true outputs before are known, so no time step waits for another."""
    before_BTO = torch.cat([o_BO[:, None], truth_BTO[:, :-1]], dim=1)
    return jordan_step(F.linear(x_BTI, weights.w_DI, weights.b_D), before_BTO, weights)

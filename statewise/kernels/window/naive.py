"""The window model, written out: an MLP that sees the last K inputs and nothing else.

    a_t = φ(Σ_k W_k x_{t-K+1+k} + b)        k = 0 is the oldest input of the window, K - 1 the present one
    y_t = V a_t + c

B batch, T time, I input width, K order (inputs in the window), S = K - 1 remembered inputs, H hidden, D width.
"""

from typing import Literal, NamedTuple, assert_never

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import observe, unroll

Activation = Literal["tanh", "relu", "gelu", "linear"]


class WindowWeights(NamedTuple):
    w_HIK: Tensor
    b_H: Tensor
    v_DH: Tensor
    c_D: Tensor
    activation: Activation = "tanh"


def activated(a: Tensor, activation: Activation) -> Tensor:
    match activation:
        case "tanh":
            return torch.tanh(a)
        case "relu":
            return torch.relu(a)
        case "gelu":
            return F.gelu(a, approximate="tanh")
        case "linear":
            return a
        case _:
            assert_never(activation)


def window_step(x_BI: Tensor, past_BSI: Tensor, weights: WindowWeights) -> tuple[Tensor, Tensor]:
    """One time step: the output, and the window that the next time step remembers."""
    window_BKI = torch.cat([past_BSI, x_BI[:, None].to(past_BSI.dtype)], dim=1)
    # One column of W for each place of the window, in the window's order: then both lie alike in memory.
    w_HN = weights.w_HIK.mT.flatten(1)
    a_BH = activated(F.linear(window_BKI.flatten(1), w_HN, weights.b_H), weights.activation)
    a_BH = observe("window.hidden", a_BH)
    return F.linear(a_BH, weights.v_DH, weights.c_D), window_BKI[:, 1:]


def window(x_BTI: Tensor, past_BSI: Tensor, weights: WindowWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    return unroll(lambda x_BI, past_BSI: window_step(x_BI, past_BSI, weights), x_BTI, past_BSI, lengths_B)

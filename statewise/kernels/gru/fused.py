"""The GRU by the op PyTorch has for the device (native on CPU, cuDNN on CUDA): reset after the product."""

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.gru.naive import GRUWeights
from statewise.kernels.torch_op import run_torch_op


def gru(x_BTI: Tensor, h_BD: Tensor, weights: GRUWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    assert weights.b_u_D is not None, "the choice sends the reset-before form to naive"
    # Of the state's three biases only the candidate's means anything; the others add to the input's.
    b_state_G = F.pad(weights.b_u_D, (2 * len(weights.b_u_D), 0))
    flat = (weights.w_GI, weights.u_GD, weights.b_G, b_state_G)
    y_BTD, (h_BD,) = run_torch_op(torch.gru, x_BTI, (h_BD,), flat, lengths_B)
    return y_BTD, h_BD

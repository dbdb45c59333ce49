"""Elman's recurrence by the op PyTorch has for the device (native on CPU, cuDNN on CUDA)."""

import torch
from torch import Tensor

from statewise.kernels.elman.naive import ElmanWeights
from statewise.kernels.torch_op import run_torch_op


def elman(x_BTI: Tensor, h_BD: Tensor, weights: ElmanWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    op = torch.rnn_tanh if weights.activation == "tanh" else torch.rnn_relu
    # PyTorch keeps one bias for the input and one for the state; only their sum means anything here.
    flat = (weights.w_DI, weights.u_DD, weights.b_D, torch.zeros_like(weights.b_D))
    y_BTD, (h_BD,) = run_torch_op(op, x_BTI, (h_BD,), flat, lengths_B)
    return y_BTD, h_BD

"""The LSTM by the op PyTorch has for the device: oneDNN on CPU, cuDNN on CUDA; projection included."""

import torch
from torch import Tensor

from statewise.kernels.lstm.naive import LSTMWeights
from statewise.kernels.torch_op import run_torch_op


def lstm(
    x_BTI: Tensor, h_BP: Tensor, c_BD: Tensor, weights: LSTMWeights, lengths_B: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    # PyTorch keeps one bias for the input and one for the state; only their sum means anything here.
    flat = [weights.w_GI, weights.u_GP, weights.b_G, torch.zeros_like(weights.b_G)]
    if weights.projection_PD is not None:
        flat.append(weights.projection_PD)
    y_BTP, (h_BP, c_BD) = run_torch_op(torch.lstm, x_BTI, (h_BP, c_BD), flat, lengths_B)
    return y_BTP, h_BP, c_BD

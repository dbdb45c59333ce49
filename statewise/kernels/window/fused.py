"""The window model for all time steps at once: its first layer is PyTorch's convolution over time.

B batch, T time, I input width, K order, S = K - 1 remembered inputs, L = S + T, H hidden, D width.
"""

from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.time_axis import beyond, extend
from statewise.kernels.window.naive import WindowWeights, activated


def window(x_BTI: Tensor, past_BSI: Tensor, weights: WindowWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    all_BLI, after_BSI = extend(past_BSI, x_BTI, lengths_B)
    a_BHT = F.conv1d(all_BLI.mT, weights.w_HIK, weights.b_H)
    y_BTD = F.linear(activated(a_BHT.mT, weights.activation), weights.v_DH, weights.c_D)
    if lengths_B is not None:
        y_BTD = y_BTD.masked_fill(beyond(lengths_B, x_BTI.shape[1])[:, :, None], 0.0)
    return y_BTD, after_BSI

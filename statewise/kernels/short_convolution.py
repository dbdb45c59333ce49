"""A causal convolution over the last few moments, channel by channel; what it still needs is its state.

B batch, T time, C channels, K taps, W = K - 1 inputs that are remembered.
"""

import torch
from torch import Tensor

from statewise.kernels.along_time import past_end


def short_convolution(
    x_BTC: Tensor, window_BWC: Tensor, weight_CK: Tensor, lengths_B: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`y_t = Σ_j w_j · x_{t-W+j}`, and the last W inputs of each row. The last tap is the present moment's."""
    time, taps = x_BTC.shape[1], weight_CK.shape[1]
    if lengths_B is not None:
        x_BTC = past_end(x_BTC, lengths_B)
    all_BSC = torch.cat([window_BWC.to(x_BTC), x_BTC], dim=1)
    y_BTC = sum((weight_CK[:, j] * all_BSC[:, j : j + time] for j in range(taps)), torch.zeros_like(x_BTC))
    if lengths_B is None:
        after_BWC = all_BSC[:, time:]
    else:
        at_BW = lengths_B.clamp(max=time)[:, None] + torch.arange(taps - 1, device=x_BTC.device)
        after_BWC = all_BSC.gather(1, at_BW[:, :, None].expand(-1, -1, all_BSC.shape[2]))
        y_BTC = past_end(y_BTC, lengths_B)
    return y_BTC, after_BWC.to(window_BWC)

"""A causal convolution over the last few time steps, channel by channel; what it still needs is its state.

B batch, T time, C channels, K taps, W = K - 1 inputs that are remembered.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.time_axis import past_end


def short_convolution(
    x_BTC: Tensor, window_BWC: Tensor, weight_CK: Tensor, lengths_B: Tensor | None, silu: bool
) -> tuple[Tensor, Tensor]:
    """The last tap is the present time step's."""
    time, taps = x_BTC.shape[1], weight_CK.shape[1]
    if lengths_B is not None:
        x_BTC = past_end(x_BTC, lengths_B)
    all_BSC = torch.cat([window_BWC.to(x_BTC), x_BTC], dim=1)
    y_BTC = weight_CK[:, 0] * all_BSC[:, :time]
    for j in range(1, taps):
        y_BTC = y_BTC + weight_CK[:, j] * all_BSC[:, j : j + time]
    y_BTC = (F.silu(y_BTC) if silu else y_BTC).to(x_BTC)
    if lengths_B is None:
        return y_BTC, all_BSC[:, time:]
    at_BW = lengths_B.clamp(max=time)[:, None] + torch.arange(taps - 1, device=x_BTC.device)
    after_BWC = all_BSC.gather(1, at_BW[:, :, None].expand(-1, -1, all_BSC.shape[2]))
    return past_end(y_BTC, lengths_B), after_BWC

"""The last few inputs as a state: what a window model and a Markov chain remember.

B batch, S remembered moments, T time, … whatever stands at each moment.
"""

import torch
from torch import Tensor


def extend(past_BS: Tensor, x_BT: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """Past and present in one row `[B, S + T, …]`, and the past of whatever comes after: `[B, S, …]`.

    Past a row's end nothing is remembered: its last S moments are those before its own length.
    """
    all_BL = torch.cat([past_BS, x_BT.to(past_BS.dtype)], dim=1)
    size, time = past_BS.shape[1], x_BT.shape[1]
    if lengths_B is None:
        return all_BL, all_BL[:, time:]
    at_BS = lengths_B.clamp(min=0, max=time)[:, None] + torch.arange(size, device=x_BT.device)
    row_B1 = torch.arange(x_BT.shape[0], device=x_BT.device)[:, None]
    return all_BL, all_BL[row_B1, at_BS]


def beyond(lengths_B: Tensor, time: int) -> Tensor:
    """`[B, T]`: true where a row has ended."""
    return torch.arange(time, device=lengths_B.device) >= lengths_B[:, None]

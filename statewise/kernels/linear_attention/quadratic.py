"""Linear attention as attention: every time step looks at all before it, and no state is formed on the way.

This is the form to compare with a Transformer's: the same matrix of scores, without the softmax.
B batch, T and S time, H heads, K key width, V value width.
"""

import torch
from torch import Tensor

from statewise.kernels.associative_memory import Inputs
from statewise.kernels.linear_attention.chunked import decay_between, within_rows
from statewise.kernels.time_axis import past_end


def linear_attention(inputs: Inputs, s_BHKV: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    q_BTHK, k_BTHK, v_BTHV, g_BTH = within_rows(inputs, lengths_B)
    total_BHT, between_BHTS = decay_between(g_BTH.mT)
    scores_BHTS = between_BHTS * torch.einsum("bthk,bshk->bhts", q_BTHK, k_BTHK)
    y_BTHV = torch.einsum("bhts,bshv->bthv", scores_BHTS, v_BTHV)
    y_BTHV = y_BTHV + torch.einsum("bht,bthk,bhkv->bthv", total_BHT.exp(), q_BTHK, s_BHKV)
    after_BHKV = torch.einsum("bhs,bshk,bshv->bhkv", between_BHTS[:, :, -1], k_BTHK, v_BTHV)
    after_BHKV = after_BHKV + total_BHT[:, :, -1, None, None].exp() * s_BHKV
    return (y_BTHV if lengths_B is None else past_end(y_BTHV, lengths_B)), after_BHKV

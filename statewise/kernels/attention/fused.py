"""Attention by PyTorch's own op, which never writes the scores to memory where the device has a kernel for it.

B batch, T queries, S slots, H heads of queries, G heads of keys and values, K width of a head.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.attention.sight import Sight, distance_bias, visible


def attention(q_BTHK: Tensor, k_BSGK: Tensor, v_BSGK: Tensor, sight: Sight, scale: float) -> Tensor:
    q_BHTK, k_BGSK, v_BGSK = q_BTHK.transpose(1, 2), k_BSGK.transpose(1, 2), v_BSGK.transpose(1, 2)
    grouped = q_BHTK.shape[1] != k_BGSK.shape[1]
    triangle = sight.whole and sight.window is None and sight.slopes_H is None
    if triangle:
        y_BHTK = F.scaled_dot_product_attention(
            q_BHTK, k_BGSK, v_BGSK, is_causal=sight.causal, scale=scale, enable_gqa=grouped
        )
        return y_BHTK.transpose(1, 2)

    seen_B1TS = visible(sight)
    # Without a rule of order, a row whose list is empty leaves its queries blind: they see all, and get 0.
    blind_B1T1 = None if sight.causal else ~seen_B1TS.any(-1, keepdim=True)
    if blind_B1T1 is not None:
        seen_B1TS = seen_B1TS | blind_B1T1
    bias_BHTS = distance_bias(sight, q_BHTK)
    mask = seen_B1TS if bias_BHTS is None else bias_BHTS.masked_fill(~seen_B1TS, -torch.inf)
    y_BHTK = F.scaled_dot_product_attention(q_BHTK, k_BGSK, v_BGSK, attn_mask=mask, scale=scale, enable_gqa=grouped)
    if blind_B1T1 is not None:
        y_BHTK = y_BHTK.masked_fill(blind_B1T1, 0.0)
    return y_BHTK.transpose(1, 2)

"""Attention by PyTorch's own op, which never writes the scores to memory where the device has a kernel for it.

B batch, T queries, S slots, H heads of queries, G heads of keys and values, K width of a head.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.attention.sight import Sight, distance_bias, visible


def attention(
    q_BTHK: Tensor, k_BSGK: Tensor, v_BSGK: Tensor, sight: Sight, scale: float, dropout: float = 0.0
) -> Tensor:
    batch, time = q_BTHK.shape[:2]
    # On a CPU the op blocks by queries; many rows with one query each are two products, in half the time.
    one_each = time == 1 and batch > 1 and q_BTHK.device.type == "cpu" and dropout == 0
    if one_each and sight.whole and not sight.causal:
        return _one_query(q_BTHK, k_BSGK, v_BSGK, scale)
    q_BHTK, k_BGSK, v_BGSK = q_BTHK.transpose(1, 2), k_BSGK.transpose(1, 2), v_BSGK.transpose(1, 2)
    grouped = q_BHTK.shape[1] != k_BGSK.shape[1]
    triangle = sight.whole and sight.window is None and sight.slopes_H is None
    if triangle:
        y_BHTK = F.scaled_dot_product_attention(
            q_BHTK, k_BGSK, v_BGSK, dropout_p=dropout, is_causal=sight.causal, scale=scale, enable_gqa=grouped
        )
        return y_BHTK.transpose(1, 2)

    seen_B1TS = visible(sight)
    # Without a rule of order, a row whose list is empty leaves its queries blind: they see all, and get 0.
    blind_B1T1 = None if sight.causal else ~seen_B1TS.any(-1, keepdim=True)
    if blind_B1T1 is not None:
        seen_B1TS = seen_B1TS | blind_B1T1
    bias_BHTS = distance_bias(sight, q_BHTK)
    mask = seen_B1TS if bias_BHTS is None else bias_BHTS.masked_fill(~seen_B1TS, -torch.inf)
    y_BHTK = F.scaled_dot_product_attention(
        q_BHTK, k_BGSK, v_BGSK, attn_mask=mask, dropout_p=dropout, scale=scale, enable_gqa=grouped
    )
    if blind_B1T1 is not None:
        y_BHTK = y_BHTK.masked_fill(blind_B1T1, 0.0)
    return y_BHTK.transpose(1, 2)


def _one_query(q_B1HK: Tensor, k_BSGK: Tensor, v_BSGK: Tensor, scale: float) -> Tensor:
    """R = H / G queries of a group stand below each other, so that no key is repeated for them."""
    k_BGSK, v_BGSK = k_BSGK.transpose(1, 2), v_BSGK.transpose(1, 2)
    q_BGRK = torch.unflatten(scale * q_B1HK[:, 0], 1, (k_BGSK.shape[1], -1))
    y_BGRK = torch.softmax(q_BGRK @ k_BGSK.mT, dim=-1) @ v_BGSK
    return y_BGRK.flatten(1, 2)[:, None]

"""Attention by PyTorch's own op, which never writes the scores to memory where the device has a kernel for it.

B batch, T queries, S slots, H heads of queries, G heads of keys and values, K width of a head.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.attention.sight import Sight, distance_bias, visible
from statewise.kernels.attention.unplanned import unplanned


def attention(
    q_BTHK: Tensor, k_BSGK: Tensor, v_BSGK: Tensor, sight: Sight, scale: float, dropout: float = 0.0
) -> Tensor:
    triangle = sight.whole and sight.window is None and sight.slopes_H is None
    if triangle and not sight.causal and q_BTHK.shape[1] == 1 and dropout == 0:
        return one_moment(q_BTHK[:, 0], k_BSGK, v_BSGK, scale)[:, None]
    q_BHTK, k_BGSK, v_BGSK = q_BTHK.transpose(1, 2), k_BSGK.transpose(1, 2), v_BSGK.transpose(1, 2)
    if triangle:
        y_BHTK = _op(q_BHTK, k_BGSK, v_BGSK, dropout_p=dropout, is_causal=sight.causal, scale=scale)
        return y_BHTK.transpose(1, 2)

    seen_B1TS = visible(sight)
    # Without a rule of order, a row whose list is empty leaves its queries blind: they see all, and get 0.
    blind_B1T1 = None if sight.causal else ~seen_B1TS.any(-1, keepdim=True)
    if blind_B1T1 is not None:
        seen_B1TS = seen_B1TS | blind_B1T1
    bias_BHTS = distance_bias(sight, q_BHTK)
    mask = seen_B1TS if bias_BHTS is None else bias_BHTS.masked_fill(~seen_B1TS, -torch.inf)
    y_BHTK = _op(q_BHTK, k_BGSK, v_BGSK, attn_mask=mask, dropout_p=dropout, scale=scale)
    if blind_B1T1 is not None:
        y_BHTK = y_BHTK.masked_fill(blind_B1T1, 0.0)
    return y_BHTK.transpose(1, 2)


def _op(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, **how: Any) -> Tensor:
    grouped = bool(q_BHTK.shape[1] != k_BGSK.shape[1])  # to torch.jit.trace a size is a tensor
    with unplanned(q_BHTK):
        return F.scaled_dot_product_attention(q_BHTK, k_BGSK, v_BGSK, enable_gqa=grouped, **how)


def one_moment(q_BHK: Tensor, k_BSGK: Tensor, v_BSGK: Tensor, scale: float) -> Tensor:
    """The queries of one moment, which see all slots. A list may be kept in another precision than they are."""
    if k_BSGK.dtype != q_BHK.dtype:
        k_BSGK, v_BSGK = k_BSGK.to(q_BHK.dtype), v_BSGK.to(q_BHK.dtype)
    k_BGSK, v_BGSK = k_BSGK.transpose(1, 2), v_BSGK.transpose(1, 2)
    (batch, heads, _), groups = q_BHK.shape, k_BGSK.shape[1]
    if batch == 1 or q_BHK.device.type != "cpu":
        return _op(q_BHK.unsqueeze(2), k_BGSK, v_BGSK, scale=scale).squeeze(2)
    # On a CPU the op blocks by queries; many rows with one query each are two products, in half the time. The
    # queries of a group stand below each other, so that no key is repeated for them.
    q_BGRK = torch.unflatten(scale * q_BHK, 1, (groups, heads // groups))
    y_BGRK = torch.softmax(q_BGRK @ k_BGSK.mT, dim=-1) @ v_BGSK
    return y_BGRK.flatten(1, 2)

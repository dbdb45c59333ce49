"""Attention, written out: each query takes a mean of the values, weighed by how well the keys answer it.

    y = softmax(q kᵀ · scale + bias) v        over the keys the query may see

`Mask` says which those are, from the positions of queries and keys.

B batch, T queries, S slots of the list, H heads of queries, G heads of keys and values (G divides H:
grouped-query attention, Ainslie et al. 2023), K width of a head.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import is_observed, observe


class Mask(NamedTuple):
    """Positions are per row, because rows differ. A key at a negative position is an empty slot.

    `causal`: keys up to the query's own position. `window`: only the newest so many of them.
    `slopes_H`: scores fall by so much with each step of distance (ALiBi, Press et al. 2022).
    `whole`: slot i holds position i in every row, for queries and keys alike, so that no mask but the
    triangle (or none at all) is needed.
    """

    query_at_BT: Tensor
    key_at_BS: Tensor
    causal: bool = True
    window: int | None = None
    slopes_H: Tensor | None = None
    whole: bool = False


def visible(mask: Mask) -> Tensor:
    """`[B, 1, T, S]`, true where the query sees the key."""
    query_BT1, key_B1S = mask.query_at_BT[:, :, None], mask.key_at_BS[:, None, :]
    seen_BTS = (key_B1S >= 0).expand(-1, query_BT1.shape[1], -1)
    if mask.causal:
        seen_BTS = seen_BTS & (key_B1S <= query_BT1)
    if mask.window is not None:
        seen_BTS = seen_BTS & (key_B1S > query_BT1 - mask.window)
    return seen_BTS[:, None]


def distance_bias(mask: Mask, like: Tensor) -> Tensor | None:
    """`[B, H, T, S]`, what ALiBi adds to the scores: minus slope times distance."""
    if mask.slopes_H is None:
        return None
    distance_BTS = (mask.query_at_BT[:, :, None] - mask.key_at_BS[:, None, :]).abs()
    # In the slopes' own precision: half precision cannot count to a distance of thousands.
    return (-mask.slopes_H[:, None, None] * distance_BTS[:, None]).to(like.dtype)


def attention(q_BTHK: Tensor, k_BSGK: Tensor, v_BSGK: Tensor, mask: Mask, scale: float, dropout: float = 0.0) -> Tensor:
    group = q_BTHK.shape[2] // k_BSGK.shape[2]
    q_BHTK = q_BTHK.transpose(1, 2)
    k_BHSK = k_BSGK.repeat_interleave(group, dim=2).transpose(1, 2)
    v_BHSK = v_BSGK.repeat_interleave(group, dim=2).transpose(1, 2)

    scores_BHTS = scale * (q_BHTK @ k_BHSK.mT)
    bias_BHTS = distance_bias(mask, scores_BHTS)
    if bias_BHTS is not None:
        scores_BHTS = scores_BHTS + bias_BHTS
    seen_B1TS = visible(mask)
    scores_BHTS = scores_BHTS.masked_fill(~seen_B1TS, -torch.inf)
    # A query that sees nothing gets 0, not the mean of an empty list.
    blind_B1T1 = ~seen_B1TS.any(-1, keepdim=True)
    weights_BHTS = torch.softmax(scores_BHTS.masked_fill(blind_B1T1, 0.0), dim=-1).masked_fill(blind_B1T1, 0.0)
    if is_observed():
        by_query = [observe("attention.weights", weights_BHS) for weights_BHS in weights_BHTS.unbind(2)]
        weights_BHTS = torch.stack(by_query, dim=2)
    if dropout > 0:  # of weights, those left are scaled up: in the mean, nothing changes
        weights_BHTS = F.dropout(weights_BHTS, dropout)
    return (weights_BHTS @ v_BHSK).transpose(1, 2)

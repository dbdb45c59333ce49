"""What a query may see: the positions of queries and keys, and the rule between them.

B batch, T queries, S slots of the list, H heads.
"""

from typing import NamedTuple

from torch import Tensor


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

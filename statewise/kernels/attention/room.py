"""A list with free slots behind its entries, so that one more entry is a write and not a copy.

B batch, S slots; what an entry is does not matter here.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from statewise.specs import UserError


class Use(NamedTuple):
    slots: int  # those that one more entry a row takes up, at most
    level: bool  # every row uses exactly so many


def with_room(list_BS: Tensor, slots: int) -> Tensor:
    """A copy of so many slots. In memory each head's slots lie together, so that a query reads them in one go."""
    batch, held, *entry = list_BS.shape
    heads, width = entry[:-1], entry[-1:]
    # Whoever reads all slots hides the free ones by a mask, and a mask does not hide a NaN: they are 0.
    copy_BS = list_BS.new_zeros(batch, *heads, slots, *width).movedim(-2, 1)
    held = min(slots, held)
    copy_BS[:, :held] = list_BS[:, :held]
    return copy_BS


def used_slots(list_BS: Tensor, length_B: Tensor) -> Use:
    """Of a list, once each row has one more entry."""
    if list_BS.device.type != "cpu":  # asking would stop the device; unused slots cost little there
        return Use(list_BS.shape[1], level=False)
    lengths = length_B.tolist()
    slots = max(lengths) + 1
    if slots > list_BS.shape[1]:
        raise UserError(f"the list is full: it has {slots - 1} slots", fix="make room with reserve(state, tokens)")
    return Use(slots, level=min(lengths) + 1 == slots)


def write_(list_BS: Tensor, new_B: Tensor, at_B: Tensor, use: Use) -> Tensor:
    """Each row's new entry into its own free slot; the slots in use then."""
    if use.level:
        list_BS.select(1, use.slots - 1).copy_(new_B)
    else:
        list_BS[torch.arange(len(at_B), device=at_B.device), at_B] = new_B.to(list_BS.dtype)
    return list_BS.narrow(1, 0, use.slots)

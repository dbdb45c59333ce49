"""The list of keys or values that is attention's state: appended to, or written in place where it has free slots.

B batch, T new entries, S slots; what an entry is does not matter here.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from statewise.core import is_known
from statewise.specs import UserError


def append(list_BS: Tensor, new_BT: Tensor, at_BT: Tensor) -> Tensor:
    """Each row's new entries stand right behind its own old ones, over slots that mean nothing.

    Rows may hold different numbers of entries; `at_BT` says where each new one goes.
    """
    if list_BS.shape[1] == 0:
        return new_BT.to(list_BS.dtype)
    new_BT = new_BT.to(list_BS.dtype)
    grown_BS = torch.cat([list_BS, new_BT], dim=1)  # the right place for rows that used every slot
    row_B1 = torch.arange(at_BT.shape[0], device=at_BT.device)[:, None]
    grown_BS[row_B1, at_BT] = new_BT  # and for the others; a fresh tensor, so nobody else sees this write
    return grown_BS


def up_to(list_BS: Tensor, length_B: Tensor) -> Tensor:
    """Where rows end early, the list need not be as long as the padding; while tracing, lengths are not known."""
    return list_BS[:, : int(length_B.max())] if is_known(length_B) else list_BS


class Use(NamedTuple):
    slots: int  # those that one more entry a row takes up, at most
    level: bool  # every row uses exactly so many


def with_room(list_BS: Tensor, slots: int) -> Tensor:
    """A copy of so many slots. In memory each head's slots lie together, so that a query reads them in one go."""
    batch, held, *entry = list_BS.shape
    heads, width = entry[:-1], entry[-1:]
    # Free slots are masked when all slots are read, and a mask does not hide a NaN: they are 0.
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

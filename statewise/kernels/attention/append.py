"""The list that is attention's state, one stretch longer.

B batch, T new entries, S slots; what an entry is does not matter here.
"""

import torch
from torch import Tensor

from statewise.core import is_known


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
    """Where rows end early, the list need not be as long as the padding; whoever traces cannot ask where they end."""
    return list_BS[:, : int(length_B.max())] if is_known(length_B) else list_BS

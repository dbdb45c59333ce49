"""What features cost beside the surprise they lead to: their size, and how fast they move.

B batch, T time, D width.
"""

from torch import Tensor

from statewise.core import onto
from statewise.specs import PenaltySpec


def penalty(spec: PenaltySpec, y_BTD: Tensor, resets_BT: Tensor | None) -> Tensor | float:
    """Summed over tokens like the loss beside it; where a document begins, nothing moved."""
    total: Tensor | float = 0.0
    if spec.size:
        total = total + spec.size * y_BTD.float().square().mean(-1).sum()
    if spec.change:
        moved_BS = y_BTD.float().diff(dim=1).square().mean(-1)
        if resets_BT is not None:
            moved_BS = moved_BS.masked_fill(onto(y_BTD.device, resets_BT[:, 1:]), 0.0)
        total = total + spec.change * moved_BS.sum()
    return total

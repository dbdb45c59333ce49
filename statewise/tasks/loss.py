"""Losses as a sum and what to divide it by, so that a batch spread over steps or processes is averaged exactly.

B batch, T time, K classes.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.models import Head
from statewise.specs import UserError

_IGNORED = -100


class WeightedSum(NamedTuple):
    """The loss of a batch is the sum of all totals over the sum of all weights."""

    total: Tensor
    weight: Tensor


def within(lengths_B: Tensor, time: int) -> Tensor:
    """`[B, T]`: true before each row's end."""
    return torch.arange(time, device=lengths_B.device) < lengths_B[:, None]


def categorical_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    counted: Tensor | None = None,
    class_weight_K: Tensor | None = None,
    smoothing: float = 0.0,
) -> WeightedSum:
    """Cross-entropy with uniform label smoothing (Szegedy et al. 2016) and class weights.

    `logits` `[..., K]`, `targets` and `counted` `[...]`. Total over weight is `F.cross_entropy`'s mean: each
    target counts by the weight of its class.
    """
    if not 0 <= smoothing < 1:
        raise UserError(f"smoothing = {smoothing} is not valid, expected 0 up to, not with, 1")
    if counted is not None:
        targets = targets.masked_fill(~counted, _IGNORED)
    logits_NK = logits.flatten(0, -2)
    wide_NK = logits_NK.to(torch.promote_types(logits_NK.dtype, torch.float32))
    targets_N = targets.flatten()
    weight_K = None if class_weight_K is None else class_weight_K.to(wide_NK)
    total = F.cross_entropy(
        wide_NK, targets_N, weight=weight_K, ignore_index=_IGNORED, label_smoothing=smoothing, reduction="sum"
    )
    kept_N = targets_N != _IGNORED
    if weight_K is None:
        return WeightedSum(total, kept_N.sum().to(total))
    weight_N = weight_K[targets_N.clamp(min=0)]
    return WeightedSum(total, torch.where(kept_N, weight_N, torch.zeros_like(weight_N)).sum())


def real_loss(head: Head[Any], params: Any, target: Tensor, *, counted: Tensor | None = None) -> WeightedSum:
    """A head's own loss; what is missing (NaN) or not counted neither adds to it nor to any gradient.

    `counted` is of the target's shape, or lacks its last axis. A head that sums over its last axis (bits)
    counts a frame once, and leaves it out when any part is missing.
    """
    present = ~target.isnan()
    if counted is not None:
        present = present & (counted if counted.dim() == target.dim() else counted[..., None])
    # Filled before the loss: a NaN masked afterwards would still be in the gradient, as 0 · NaN.
    loss = head.nats(params, torch.where(present, target, torch.zeros_like(target)))
    if loss.dim() < target.dim():
        present = present.all(-1)
    return WeightedSum(torch.where(present, loss, torch.zeros_like(loss)).sum(), present.sum().to(loss))

"""Losses as a sum and what to divide it by, so that a batch spread over steps or processes is averaged exactly.

B batch, T time, K classes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.models.head import Head
from statewise.specs import UserError
from statewise.specs.error import nearest

ClassWeighting = Literal["none", "balanced"] | Mapping[str, float]

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


def class_weights(weighting: ClassWeighting, *, names: Sequence[str], counts: Sequence[int]) -> Tensor | None:
    """One weight a class, in the order of `names`; `counts` are those of the training part.

    `"balanced"` is `N / (K · n_k)`, so that every class weighs the same in total; a table names each class.
    """
    assert len(names) == len(counts), (len(names), len(counts))
    if isinstance(weighting, Mapping):
        for name in weighting:
            if name not in names:
                raise UserError(f"class_weights names {name!r}, which is no class", fix=nearest(name, names))
        missing = [name for name in names if name not in weighting]
        if missing:
            raise UserError(f"class_weights has no weight for {', '.join(missing)}", fix="give every class one")
        for name, value in weighting.items():
            if not 0 <= value < float("inf"):
                raise UserError(f"class_weights.{name} = {value} is not valid, expected a finite number, 0 or more")
        if not any(weighting.values()):
            raise UserError("every class weight is 0, so nothing would be learned")
        return torch.tensor([float(weighting[name]) for name in names])
    if weighting == "none":
        return None
    if weighting != "balanced":
        raise UserError(
            f"class_weights = {weighting!r} is not valid", fix=nearest(weighting, ["none", "balanced"]) + ", or a table"
        )
    absent = [name for name, count in zip(names, counts) if count == 0]
    if absent:
        raise UserError(
            f"balanced class weights need an example of each class; the training part has none of {', '.join(absent)}",
            fix='leave the class out, or give a table of weights, or class_weights = "none"',
        )
    return torch.tensor([sum(counts) / (len(counts) * count) for count in counts])

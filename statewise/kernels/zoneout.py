"""Zoneout (Krueger et al. 2016): some units keep their last value instead of the new one."""

import torch
from torch import Tensor


def zoneout(old: Tensor, new: Tensor, *, rate: float, training: bool) -> Tensor:
    """While training a random choice per unit and step; otherwise its expectation, so that steps stay exact."""
    if rate == 0.0:
        return new
    if not training:
        return torch.lerp(new, old, rate)
    return torch.where(torch.rand_like(new) < rate, old, new)

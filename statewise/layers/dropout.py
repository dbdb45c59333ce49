"""Dropout that knows about time: fresh at every step, or one mask for the whole sequence."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def drop(x: Tensor, rate: float, *, training: bool) -> Tensor:
    """F.dropout, which draws and multiplies by a mask of ones even where there is nothing to drop."""
    return F.dropout(x, rate) if training and rate > 0 else x


class Dropout(nn.Module):
    """`variational=True` draws one mask a row and keeps it over time (Gal and Ghahramani 2016)."""

    def __init__(self, rate: float, *, variational: bool = False) -> None:
        super().__init__()
        self.rate = rate
        self.variational = variational

    def forward(self, x_BTD: Tensor) -> Tensor:
        if not self.variational or not self.training:
            return drop(x_BTD, self.rate, training=self.training)
        if self.rate == 0.0:
            return x_BTD
        keep = 1 - self.rate
        mask_B1D = torch.empty_like(x_BTD[:, :1]).bernoulli_(keep).div_(keep)
        return x_BTD * mask_B1D

    def extra_repr(self) -> str:
        return f"{self.rate}, variational={self.variational}"

"""Dropout that knows about time: fresh at every step, or one mask for the whole sequence."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    """`variational=True` draws one mask a row and keeps it over time (Gal and Ghahramani 2016)."""

    def __init__(self, rate: float, *, variational: bool = False) -> None:
        super().__init__()
        self.rate = rate
        self.variational = variational

    def forward(self, x_BTD: Tensor) -> Tensor:
        if not self.variational or not self.training or self.rate == 0.0:
            return F.dropout(x_BTD, self.rate, self.training)
        keep = 1 - self.rate
        mask_B1D = torch.empty_like(x_BTD[:, :1]).bernoulli_(keep).div_(keep)
        return x_BTD * mask_B1D

    def extra_repr(self) -> str:
        return f"{self.rate}, variational={self.variational}"

"""A recurrence whose gates do not look at the state: `h_t = a_t · h_{t-1} + b_t`, unit by unit.

B batch, T time, D width.
"""

import torch
from torch import Tensor

from statewise.core import observe, unroll_many


def scan_step(a_BD: Tensor, b_BD: Tensor, h_BD: Tensor) -> tuple[Tensor, Tensor]:
    """One time step."""
    a_BD = observe("scan.keep", a_BD)
    b_BD = observe("scan.input", b_BD)
    h_BD = observe("scan.h", a_BD * h_BD + b_BD)
    return h_BD, h_BD


def gates(z_BTD: Tensor, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
    """a and b of `h_t = (1 - σ(z)) · h_{t-1} + σ(z) · x`, whose state moves from where it is towards x."""
    # σ(-z) and not 1 - σ(z): the small one of the two keeps its digits.
    return torch.sigmoid(-z_BTD), torch.sigmoid(z_BTD) * x_BTD


def scan(a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    return unroll_many(scan_step, (a_BTD, b_BTD), h_BD, lengths_B)

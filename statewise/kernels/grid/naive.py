"""A recurrence on a grid, cell by cell, from the upper left corner: a cell knows what is above and what is left of it.

    h_ij = tanh(W x_ij + U h_{i-1,j} + V h_{i,j-1} + b)

B batch, H height, W width of the grid, I input width, D width of the state.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import observe


class GridWeights(NamedTuple):
    w_DI: Tensor
    u_DD: Tensor
    v_DD: Tensor
    b_D: Tensor


def grid(x_BHWI: Tensor, weights: GridWeights) -> Tensor:
    batch, height, width = x_BHWI.shape[:3]
    a_BHWD = F.linear(x_BHWI, weights.w_DI, weights.b_D)
    outside_BD = a_BHWD.new_zeros(batch, a_BHWD.shape[-1])
    rows: list[Tensor] = []
    above = [outside_BD] * width
    for i in range(height):
        left_BD = outside_BD
        row = []
        for j in range(width):
            left_BD = torch.tanh(a_BHWD[:, i, j] + above[j] @ weights.u_DD.mT + left_BD @ weights.v_DD.mT)
            row.append(observe("grid.h", left_BD))
        above = row
        rows.append(torch.stack(row, dim=1))
    return torch.stack(rows, dim=1)

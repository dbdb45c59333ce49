"""The grid by anti-diagonals: no cell of one needs another of the same, so that each is one step for all its cells.

    h_ij  needs  h_{i-1,j} and h_{i,j-1}, and both have i + j - 1

`H + W - 1` steps where cell by cell takes `H · W`.

B batch, H height, W width of the grid, N = H · W cells, M cells of one diagonal, I input width, D width of the state.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.grid.naive import GridWeights


def grid(x_BHWI: Tensor, weights: GridWeights) -> Tensor:
    batch, height, width = x_BHWI.shape[:3]
    a_BND = F.linear(x_BHWI, weights.w_DI, weights.b_D).flatten(1, 2)
    uv_2DD = torch.cat([weights.u_DD, weights.v_DD], dim=1).mT
    diagonals, cells = [], []
    before_BMD, first_before = a_BND.new_zeros(batch, 0, a_BND.shape[-1]), 0
    for d in range(height + width - 1):
        first, last = max(0, d - width + 1), min(d, height - 1)
        row_M = torch.arange(first, last + 1, device=x_BHWI.device)
        cell_M = row_M * width + (d - row_M)
        # One row of nothing at each end: what is above the first row, and left of the first column.
        padded_BPD = F.pad(before_BMD, (0, 0, 1, 1 + (d == 0)))
        at = first - first_before
        above_BMD, left_BMD = padded_BPD[:, at : at + len(row_M)], padded_BPD[:, at + 1 : at + 1 + len(row_M)]
        before_BMD = torch.tanh(a_BND[:, cell_M] + torch.cat([above_BMD, left_BMD], dim=-1) @ uv_2DD)
        first_before = first
        diagonals.append(before_BMD)
        cells.append(cell_M)
    h_BND = torch.cat(diagonals, dim=1)[:, torch.cat(cells).argsort()]
    return h_BND.view(batch, height, width, -1)

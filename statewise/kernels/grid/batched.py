"""The grid by anti-diagonals: no cell of one needs another of the same, so that each is one step for all its cells.

    h_ij  needs  h_{i-1,j} and h_{i,j-1}, and both have i + j - 1

`H + W - 1` steps where cell by cell takes `H · W`.

B batch, H height, W width of the grid, N = H · W cells, M cells of one diagonal, I input width, D width of the state.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import kept_loop
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


def any_size(x_BHWI: Tensor, weights: GridWeights) -> Tensor:
    """The same as one loop: every diagonal has H places, one a row, of which those outside of the grid stay 0."""
    height, width = x_BHWI.shape[1:3]
    a_BHWD = F.linear(x_BHWI, weights.w_DI, weights.b_D)
    row_H1, at_1J = (torch.arange(n, device=x_BHWI.device) for n in (height, height + width - 1))
    column_HJ = at_1J[None] - row_H1[:, None]
    inside_HJ = (column_HJ >= 0) & (column_HJ < width)
    skewed_BHJD = _taken(a_BHWD, column_HJ.clamp(min=0, max=width - 1))
    inside_BHJ1 = inside_HJ[None, :, :, None].expand(x_BHWI.shape[0], -1, -1, 1)

    def diagonal(before: Sequence[Tensor], now: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        (left_BHD,), (a_BHD, inside_BH1) = before, now
        above_BHD = torch.cat([torch.zeros_like(left_BHD[:, :1]), left_BHD[:, :-1]], dim=1)
        h_BHD = torch.tanh(a_BHD + above_BHD @ weights.u_DD.mT + left_BHD @ weights.v_DD.mT)
        h_BHD = torch.where(inside_BH1, h_BHD, torch.zeros_like(h_BHD))
        return [h_BHD], h_BHD

    inputs = [part.transpose(1, 2) for part in (skewed_BHJD, inside_BHJ1)]
    _, h_BJHD = kept_loop(diagonal, [torch.zeros_like(a_BHWD[:, :, 0])], inputs)
    return _taken(h_BJHD.transpose(1, 2), row_H1[:, None] + torch.arange(width, device=x_BHWI.device)[None])


def _taken(value_BHMD: Tensor, at_HN: Tensor) -> Tensor:
    """Of each row the places `at_HN`, `[B, H, N, D]`."""
    batch, _, _, width = value_BHMD.shape
    return value_BHMD.gather(2, at_HN[None, :, :, None].expand(batch, -1, -1, width))

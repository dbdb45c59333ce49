"""The two-dimensional recurrent network (Graves et al. 2007): four readings of a grid, one from each corner.

B batch, H height, W width of the grid, I input width, D width of one reading, Q the four corners.
"""

from typing import final

import torch
from torch import Tensor, nn

from statewise.core import Encoder, Stacked, scope
from statewise.kernels import Choice, Wish, reverse_rows
from statewise.kernels.grid import GridWeights, choice, grid
from statewise.layers import Filler, Scheme
from statewise.specs import UserError

CORNERS = ("upper_left", "upper_right", "lower_left", "lower_right")  # where each reading begins


@final
class GridEncoder(Encoder, Stacked):
    """`h_ij = tanh(W x_ij + U h_{i-1,j} + V h_{i,j-1} + b)`, from each corner with weights of its own.

    `[B, H, W, I]` to `[B, H, W, 4 D]`, the readings in the order of `CORNERS`. `sizes_B2` gives each grid's own
    height and width: readings begin at its true corners, and outside it outputs are 0.
    """

    axes = 2

    def __init__(
        self,
        width: int,
        *,
        input_width: int | None = None,
        init: Scheme = "orthogonal",
        kernel: Wish = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.width = width
        self.input_width = input_width or width
        self.output_width = len(CORNERS) * width
        self.kernel: Wish = kernel
        corners = len(CORNERS)
        self.w_QDI = nn.Parameter(torch.empty(corners, width, self.input_width))
        self.u_QDD = nn.Parameter(torch.empty(corners, width, width))
        self.v_QDD = nn.Parameter(torch.empty(corners, width, width))
        self.b_QD = nn.Parameter(torch.zeros(corners, width))
        fill = Filler(init, generator)
        for corner in range(corners):
            fill.input(self.w_QDI.detach()[corner])
            for recurrent in (self.u_QDD, self.v_QDD):
                fill.recurrent(recurrent.detach()[corner])
        with torch.no_grad():  # a cell has two pasts: halved, so that together they neither grow nor fade
            self.u_QDD.mul_(0.5)
            self.v_QDD.mul_(0.5)

    def choice(self) -> Choice:
        """Which implementation will run, and why."""
        return choice(wish=self.kernel)

    def stacked(self) -> dict[str, list[int]]:
        return {"b_QD": []}

    def forward(self, x_BHWI: Tensor, sizes_B2: Tensor | None = None) -> Tensor:
        if x_BHWI.dim() != 4 or x_BHWI.shape[3] != self.input_width or 0 in x_BHWI.shape:
            wanted = f"a non-empty [batch, height, width, {self.input_width}]"
            raise UserError(f"input has shape {list(x_BHWI.shape)}, expected {wanted}")
        if sizes_B2 is not None and (sizes_B2.shape != (x_BHWI.shape[0], 2) or sizes_B2.is_floating_point()):
            raise UserError(f"sizes must be {len(x_BHWI)} pairs of whole numbers; got shape {list(sizes_B2.shape)}")
        if sizes_B2 is not None:
            x_BHWI = x_BHWI.masked_fill(~_inside(x_BHWI, sizes_B2), 0.0)
        readings = []
        for number, corner in enumerate(CORNERS):
            weights = GridWeights(self.w_QDI[number], self.u_QDD[number], self.v_QDD[number], self.b_QD[number])
            with scope(corner):
                h_BHWD = grid(_turn(x_BHWI, corner, sizes_B2), weights, wish=self.kernel)
            readings.append(_turn(h_BHWD, corner, sizes_B2))
        y_BHWC = torch.cat(readings, dim=-1)
        return y_BHWC if sizes_B2 is None else y_BHWC.masked_fill(~_inside(x_BHWI, sizes_B2), 0.0)


def seen_order(corner: str, height: int, width: int) -> Tensor:
    """The cells, counted row by row, in the order in which the reading from a corner shows them to a lens."""
    place_1HW1 = torch.arange(height * width).view(1, height, width, 1)
    return _turn(place_1HW1, corner, None).flatten()


def _turn(x: Tensor, corner: str, sizes_B2: Tensor | None) -> Tensor:
    """So that this corner is the upper left one; and back again."""
    vertical, horizontal = corner.split("_")
    height_B, width_B = (None, None) if sizes_B2 is None else (sizes_B2[:, 0], sizes_B2[:, 1])
    if vertical == "lower":
        x = reverse_rows(x, height_B)
    if horizontal == "right":
        x = reverse_rows(x.transpose(1, 2), width_B).transpose(1, 2)
    return x


def _inside(x_BHWI: Tensor, sizes_B2: Tensor) -> Tensor:
    row_H1 = torch.arange(x_BHWI.shape[1], device=x_BHWI.device)[:, None]
    column_1W = torch.arange(x_BHWI.shape[2], device=x_BHWI.device)[None]
    inside_BHW = (row_H1 < sizes_B2[:, :1, None]) & (column_1W < sizes_B2[:, 1:, None])
    return inside_BHW[..., None]

"""A whole grid to one class.

B batch, H height, W width of the grid, I values of a cell, C width of what four readings give, K classes.
"""

from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import Tensor, nn

from statewise.core import scope
from statewise.encoders import CORNERS, GridEncoder
from statewise.layers import Dropout
from statewise.models.head import CategoricalHead
from statewise.specs import GridSpec

GridSummary = Literal["mean", "max", "corners"]


@final
class GridClassifier(nn.Module):
    """`(grids, sizes)` to logits `[B, K]`: layers of four scans each, a summary of all cells, and a head."""

    def __init__(
        self,
        *,
        encoders: Sequence[GridEncoder],
        input_dropout: Dropout,
        dropout: Dropout,
        summary: GridSummary,
        head: CategoricalHead,
    ) -> None:
        super().__init__()
        self.input_dropout = input_dropout
        self.encoders = nn.ModuleList(encoders)
        self.dropout = dropout
        self.summary: GridSummary = summary
        self.head = head

    def forward(self, x_BHWI: Tensor, sizes_B2: Tensor | None = None) -> Tensor:
        if sizes_B2 is None:
            sizes_B2 = torch.tensor(x_BHWI.shape[1:3], device=x_BHWI.device).expand(x_BHWI.shape[0], 2)
        return self.judge(self.read(x_BHWI, sizes_B2), sizes_B2)

    def read(self, x_BHWI: Tensor, sizes_B2: Tensor) -> Tensor:
        """The last layer's output for every cell."""
        y_BHWC: Tensor = self.input_dropout(x_BHWI)
        for number, encoder in enumerate(self.encoders):
            with scope(f"layers.{number}"):
                y_BHWC = self.dropout(encoder(y_BHWC, sizes_B2))
        return y_BHWC

    def judge(self, y_BHWC: Tensor, sizes_B2: Tensor) -> Tensor:
        """Logits from the summary of all cells."""
        return self.head(self._summary(y_BHWC, sizes_B2))

    def _summary(self, y_BHWC: Tensor, sizes_B2: Tensor) -> Tensor:
        match self.summary:
            case "mean":  # outputs outside a grid are 0
                return y_BHWC.sum((1, 2)) / sizes_B2.prod(1, keepdim=True)
            case "max":
                rows_H1 = torch.arange(y_BHWC.shape[1], device=y_BHWC.device)[:, None]
                columns_1W = torch.arange(y_BHWC.shape[2], device=y_BHWC.device)[None]
                outside_BHW = (rows_H1 >= sizes_B2[:, :1, None]) | (columns_1W >= sizes_B2[:, 1:, None])
                return y_BHWC.masked_fill(outside_BHW[..., None], -torch.inf).amax((1, 2))
            case "corners":
                return ends_of(y_BHWC, sizes_B2)


def ends_of(y_BHWC: Tensor, sizes_B2: Tensor) -> Tensor:
    """The last cell of each scan, which has seen the whole grid: the corner opposite to its start."""
    row_B = torch.arange(y_BHWC.shape[0], device=y_BHWC.device)
    lowest_B, rightmost_B = (sizes_B2 - 1).unbind(1)
    ends = []
    for begin, reading_BHWD in zip(CORNERS, y_BHWC.chunk(len(CORNERS), dim=-1), strict=True):
        vertical, horizontal = begin.split("_")
        at_row = lowest_B if vertical == "upper" else torch.zeros_like(lowest_B)
        at_column = rightmost_B if horizontal == "left" else torch.zeros_like(rightmost_B)
        ends.append(reading_BHWD[row_B, at_row, at_column])
    return torch.cat(ends, dim=-1)


def build_grid_classifier(spec: GridSpec, *, channels: int, num_classes: int, seed: int = 0) -> GridClassifier:
    """A classifier of grids with `channels` values in each cell."""
    generator = torch.Generator().manual_seed(seed)
    encoders: list[GridEncoder] = []
    entering = channels
    for _ in range(spec.depth):
        encoder = GridEncoder(spec.width, input_width=entering, init=spec.init, kernel=spec.kernel, generator=generator)
        encoders.append(encoder)
        entering = encoder.output_width
    return GridClassifier(
        encoders=encoders,
        input_dropout=Dropout(spec.input_dropout),
        dropout=Dropout(spec.dropout),
        summary=spec.summary,
        head=CategoricalHead(entering, num_classes, generator=generator),
    )

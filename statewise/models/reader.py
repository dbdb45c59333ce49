"""Readers of a source: any stack, one way or both, with its summary.

B batch, S source time, C output width.
"""

from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import Tensor, nn

from statewise.encoders import Bidirectional
from statewise.layers import Embedding
from statewise.models.seq2seq import Encoded, Reader
from statewise.models.stack import Stack

Summary = Literal["last", "mean"]


def last_of(y_BSC: Tensor, lengths_B: Tensor) -> Tensor:
    """Each row's output at its own end; 0 for an empty row."""
    at_B = (lengths_B - 1).clamp(min=0)
    last_BC = y_BSC[torch.arange(len(y_BSC), device=y_BSC.device), at_B]
    return torch.where((lengths_B > 0)[:, None], last_BC, torch.zeros_like(last_BC))


def mean_of(y_BSC: Tensor, lengths_B: Tensor) -> Tensor:
    """The mean over positions that exist (outputs past the end are 0)."""
    return y_BSC.sum(1) / lengths_B.clamp(min=1)[:, None]


@final
class OneWay(Reader):
    """A stack of mixers from the first position to the last."""

    def __init__(self, embedding: Embedding, stack: Stack, *, width: int, summary: Summary = "last") -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.width = width
        self.summary: Summary = summary

    def forward(self, source_BS: Tensor, lengths_B: Tensor) -> Encoded:
        y_BSC, _ = self.stack(self.embedding(source_BS), None, lengths_B)
        past_BS = torch.arange(source_BS.shape[1], device=lengths_B.device) >= lengths_B[:, None]
        y_BSC = y_BSC.masked_fill(past_BS[:, :, None], 0.0)
        summary = last_of if self.summary == "last" else mean_of
        return Encoded(y_BSC, summary(y_BSC, lengths_B), lengths_B)


@final
class BothWays(Reader):
    """Layers that each read from both ends; the last of such a reading is the end of each direction."""

    def __init__(
        self, embedding: Embedding, layers: Sequence[Bidirectional], *, width: int, summary: Summary = "last"
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.width = width
        self.summary: Summary = summary

    def forward(self, source_BS: Tensor, lengths_B: Tensor) -> Encoded:
        y_BSC: Tensor = self.embedding(source_BS)
        for layer in self.layers:
            y_BSC = layer(y_BSC, lengths_B)
        if self.summary == "mean":
            return Encoded(y_BSC, mean_of(y_BSC, lengths_B), lengths_B)
        half = self.width // 2
        return Encoded(y_BSC, torch.cat([last_of(y_BSC[..., :half], lengths_B), y_BSC[:, 0, half:]], dim=-1), lengths_B)

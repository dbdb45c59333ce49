"""Logits by the matrix of an embedding, for some of its symbols.

V symbols, E embedding width.
"""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.layers import Embedding


@final
class TiedHead(nn.Module):
    """Logits of the first `symbols` of an embedding by its own matrix, through a narrowing map where widths differ."""

    def __init__(self, embedding: Embedding, symbols: int, width: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.weight_VE, self.symbols = embedding.weight, symbols
        self.bias_V = nn.Parameter(torch.zeros(symbols))
        self.narrow: nn.Linear | None = None
        if embedding.weight.shape[1] != width:
            self.narrow = nn.Linear(width, embedding.weight.shape[1], bias=False)
            nn.init.xavier_uniform_(self.narrow.weight, generator=generator)

    def forward(self, y: Tensor) -> Tensor:
        y = y if self.narrow is None else self.narrow(y)
        return F.linear(y, self.weight_VE[: self.symbols], self.bias_V)

"""From features to a distribution over tokens."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.layers import Embedding


class CategoricalHead(nn.Module):
    """`logits = V y + c`; tied, V is the embedding matrix (through a narrowing map where widths differ)."""

    def __init__(
        self, width: int, vocab: int, *, tie: Embedding | None = None, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.bias_V = nn.Parameter(torch.zeros(vocab))
        self.narrow_ED: nn.Parameter | None = None
        if tie is None:
            self.weight_VE = nn.Parameter(torch.empty(vocab, width))
            nn.init.xavier_uniform_(self.weight_VE, generator=generator)
            return
        self.weight_VE = tie.weight
        if tie.weight.shape[1] != width:
            self.narrow_ED = nn.Parameter(torch.empty(tie.weight.shape[1], width))
            nn.init.xavier_uniform_(self.narrow_ED, generator=generator)

    def forward(self, y: Tensor) -> Tensor:
        if self.narrow_ED is not None:
            y = y @ self.narrow_ED.mT
        return F.linear(y, self.weight_VE, self.bias_V)

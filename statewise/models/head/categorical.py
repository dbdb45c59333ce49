"""From features to a distribution over tokens."""

from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.layers import Embedding
from statewise.models.head.contract import Head


@final
class CategoricalHead(Head[Tensor]):
    """`logits = V y + c`; tied, V is the embedding matrix (through a narrowing map where widths differ)."""

    loss: ClassVar[str] = "nats"

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

    def nats(self, params: Tensor, target: Tensor) -> Tensor:
        """`-log p(target)`, of the shape of the target."""
        logits_NV = params.flatten(0, -2)
        wide_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
        return F.cross_entropy(wide_NV, target.flatten(), reduction="none").view(target.shape)

    @torch.no_grad()
    def sample(self, params: Tensor, generator: torch.Generator | None = None) -> Tensor:
        p_NV = params.flatten(0, -2).double().softmax(-1)
        return torch.multinomial(p_NV, 1, generator=generator).view(params.shape[:-1])

"""From features to a distribution over tokens."""

from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.kernels.cross_entropy import token_nats, total_nats
from statewise.kernels.few_rows import linear
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
        return linear(self._narrowed(y), self.weight_VE, self.bias_V)

    def _narrowed(self, y: Tensor) -> Tensor:
        return y if self.narrow_ED is None else y @ self.narrow_ED.mT

    def nats(self, params: Tensor, target: Tensor) -> Tensor:
        """`-log p(target)`, of the shape of the target."""
        logits_NV = params.flatten(0, -2)
        wide_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
        return F.cross_entropy(wide_NV, target.flatten(), reduction="none").view(target.shape)

    def total_nats(self, y: Tensor, target: Tensor) -> Tensor:
        """The sum of `nats`, straight from the features: of many tokens the logits never all exist at once."""
        return total_nats(self._narrowed(y).flatten(0, -2), self.weight_VE, self.bias_V, target.flatten())

    @torch.no_grad()
    def token_nats(self, y: Tensor, target: Tensor) -> Tensor:
        """`nats` straight from the features, without gradients, and without all logits at once."""
        y_NE = self._narrowed(y).flatten(0, -2)
        return token_nats(y_NE, self.weight_VE, self.bias_V, target.flatten()).view(target.shape)

    @torch.no_grad()
    def sample(self, params: Tensor, generator: torch.Generator | None = None) -> Tensor:
        p_NV = params.flatten(0, -2).double().softmax(-1)
        return torch.multinomial(p_NV, 1, generator=generator).view(params.shape[:-1])

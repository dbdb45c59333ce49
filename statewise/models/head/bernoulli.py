"""Vectors of bits: which notes sound together, each with its own probability.

C bits.
"""

from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.models.head.contract import Head
from statewise.models.head.projection import Projection


@final
class BernoulliHead(Head[Tensor]):
    """Logits `[..., C]`; the nats of a frame are the sum over its bits."""

    loss: ClassVar[str] = "nats"

    def __init__(self, width: int, channels: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.project = Projection(width, channels, start=[0.0], generator=generator)

    def forward(self, y: Tensor) -> Tensor:
        return self.project(y).squeeze(-1)

    def nats(self, params: Tensor, target: Tensor) -> Tensor:
        """Of each frame, `[...]`."""
        return F.binary_cross_entropy_with_logits(params, target.to(params.dtype), reduction="none").sum(-1)

    def mean(self, params: Tensor) -> Tensor:
        """The probability of each bit."""
        return params.sigmoid()

    @torch.no_grad()
    def sample(self, params: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.bernoulli(params.sigmoid(), generator=generator)

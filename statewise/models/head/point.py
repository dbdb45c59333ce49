"""One number and no word about how sure it is."""

from typing import ClassVar, NoReturn, final

import torch
from torch import Tensor

from statewise.models.head.contract import RealHead
from statewise.models.head.projection import Projection
from statewise.specs import UserError


@final
class PointHead(RealHead[Tensor]):
    """Learns the mean by squared error."""

    loss: ClassVar[str] = "squared error"

    def __init__(self, width: int, channels: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.project = Projection(width, channels, start=[0.0], generator=generator)

    def forward(self, y: Tensor) -> Tensor:
        return self.project(y).squeeze(-1)

    def nats(self, params: Tensor, target: Tensor) -> Tensor:
        """The squared error: there is no density."""
        return (target - params).square()

    def mean(self, params: Tensor) -> Tensor:
        return params

    def quantile(self, params: Tensor, q: float) -> NoReturn:
        raise UserError(
            "a point head does not say how sure it is, so it has no quantiles and no intervals",
            fix="train with a gaussian, student or quantile head",
        )

    @torch.no_grad()
    def sample(self, params: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The point itself: a roll-out of a point head is not random."""
        return params.detach()

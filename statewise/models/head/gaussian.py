"""The normal distribution."""

import math
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.models.head.contract import RealHead, check_probability
from statewise.models.head.projection import Projection


class Gaussian(NamedTuple):
    mean: Tensor
    scale: Tensor


@final
class GaussianHead(RealHead[Gaussian]):
    """`mean`, and `scale = smallest + softplus(s)`: the floor keeps the density of a target hit exactly finite."""

    loss: ClassVar[str] = "nats"

    def __init__(
        self, width: int, channels: int, *, smallest: float = 1e-4, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.smallest = smallest
        self.project = Projection(width, channels, start=[0.0, math.log(math.expm1(1))], generator=generator)

    def forward(self, y: Tensor) -> Gaussian:
        mean, raw = self.project(y).unbind(-1)
        return Gaussian(mean, self.smallest + F.softplus(raw))

    def nats(self, params: Gaussian, target: Tensor) -> Tensor:
        z = (target - params.mean) / params.scale
        return 0.5 * z.square() + params.scale.log() + 0.5 * math.log(2 * math.pi)

    def mean(self, params: Gaussian) -> Tensor:
        return params.mean

    def quantile(self, params: Gaussian, q: float) -> Tensor:
        check_probability(q)
        z = float(torch.special.ndtri(torch.tensor(q, dtype=torch.float64)))
        return params.mean + z * params.scale

    def cdf(self, params: Gaussian, value: Tensor) -> Tensor:
        below: Tensor = torch.special.ndtr((value - params.mean) / params.scale)
        return below

    @torch.no_grad()
    def sample(self, params: Gaussian, generator: torch.Generator | None = None) -> Tensor:
        return torch.normal(params.mean, params.scale, generator=generator)

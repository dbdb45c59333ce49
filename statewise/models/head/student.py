"""Student's t distribution: like the normal, with room for outliers."""

import math
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels import student_t
from statewise.models.head.contract import RealHead, check_probability
from statewise.models.head.projection import Projection


class Student(NamedTuple):
    location: Tensor
    scale: Tensor  # not the deviation, which is scale · √(ν / (ν - 2))
    freedom: Tensor  # ν > 2, so that the variance exists


@final
class StudentHead(RealHead[Student]):
    """`location`, `scale = smallest + softplus(s)` and `ν = 2 + smallest + softplus(n)`."""

    loss: ClassVar[str] = "nats"

    def __init__(
        self, width: int, channels: int, *, smallest: float = 1e-4, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.smallest = smallest
        self.project = Projection(width, channels, start=[0.0, math.log(math.expm1(1)), 5.0], generator=generator)

    def forward(self, y: Tensor) -> Student:
        location, scale, freedom = self.project(y).unbind(-1)
        return Student(location, self.smallest + F.softplus(scale), 2 + self.smallest + F.softplus(freedom))

    def nats(self, params: Student, target: Tensor) -> Tensor:
        z = (target - params.location) / params.scale
        return params.scale.log() - student_t.log_density(z, params.freedom)

    def mean(self, params: Student) -> Tensor:
        return params.location

    def quantile(self, params: Student, q: float) -> Tensor:
        """Differentiable in location and scale; ν is taken as given."""
        check_probability(q)
        z = student_t.quantile(params.freedom.new_tensor(q, dtype=torch.float64), params.freedom.detach())
        return params.location + z.to(params.scale) * params.scale

    def cdf(self, params: Student, value: Tensor) -> Tensor:
        z = (value - params.location) / params.scale
        return student_t.cdf(z, params.freedom).to(params.scale)

    @torch.no_grad()
    def sample(self, params: Student, generator: torch.Generator | None = None) -> Tensor:
        """`cos(2πv) · √(ν (u^(-2/ν) - 1))` of two uniforms (Bailey 1994): Box and Muller's method for the t."""
        freedom = params.freedom.double()
        u, v = (
            torch.rand(freedom.shape, generator=generator, dtype=torch.float64, device=freedom.device) for _ in range(2)
        )
        radius = (freedom * torch.expm1(-2 / freedom * torch.log1p(-u))).sqrt()
        z = radius * torch.cos(2 * math.pi * v)
        return params.location + z.to(params.scale) * params.scale

"""Heads for real values: a point, a normal, a Student's t, or quantiles.

C channels, Q levels.
"""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import ClassVar, NamedTuple, NoReturn, TypeVar, final

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels import student_t
from statewise.models.head import Projection, RealHead, ScalarHead, check_probability
from statewise.specs import UserError

P = TypeVar("P")
_ONE = math.log(math.expm1(1))  # whose softplus is 1


@final
class PointHead(ScalarHead, RealHead[Tensor]):
    """Learns the mean by squared error."""

    loss: ClassVar[str] = "squared error"

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

    def drawn(self, params: Tensor, uniform: Tensor) -> Tensor:
        """The point itself: a roll-out of a point head is not random."""
        return params


class _ScaledHead(RealHead[P]):
    """A density with a location and a scale. `smallest` is the floor of the scale."""

    loss: ClassVar[str] = "nats"
    start: ClassVar[tuple[float, ...]]  # what the raw parameters are before training

    def __init__(
        self, width: int, channels: int, *, smallest: float = 1e-4, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.smallest = smallest
        self.project = Projection(width, channels, start=self.start, generator=generator)


class Gaussian(NamedTuple):
    mean: Tensor
    scale: Tensor


@final
class GaussianHead(_ScaledHead[Gaussian]):
    """`mean`, and `scale = smallest + softplus(s)`: the floor keeps the density of a target hit exactly finite."""

    start: ClassVar[tuple[float, ...]] = (0.0, _ONE)

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

    def drawn(self, params: Gaussian, uniform: Tensor) -> Tensor:
        """`cos(2πv) · √(-2 log u)` (Box and Muller 1958)."""
        u, v = uniform.unbind(-1)
        z = (-2 * (1 - u).log()).sqrt() * torch.cos(2 * math.pi * v)
        return params.mean + z.to(params.scale) * params.scale


class Student(NamedTuple):
    location: Tensor
    scale: Tensor  # not the deviation, which is scale · √(ν / (ν - 2))
    freedom: Tensor  # ν > 2, so that the variance exists


@final
class StudentHead(_ScaledHead[Student]):
    """`location`, `scale = smallest + softplus(s)` and `ν = 2 + smallest + softplus(n)`."""

    start: ClassVar[tuple[float, ...]] = (0.0, _ONE, 5.0)

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

    def drawn(self, params: Student, uniform: Tensor) -> Tensor:
        """`cos(2πv) · √(ν (u^(-2/ν) - 1))` (Bailey 1994): Box and Muller's method for the t."""
        u, v = uniform.unbind(-1)
        freedom = params.freedom.double()
        radius = (freedom * torch.expm1(-2 / freedom * (1 - u).log())).sqrt()
        z = radius * torch.cos(2 * math.pi * v)
        return params.location + z.to(params.scale) * params.scale


DEFAULT_LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)


@final
class QuantileHead(RealHead[Tensor]):
    """Values `[..., C, Q]` that cannot cross: the middle one, and softplus gaps away from it.

    Learned by the pinball loss `max(q d, (q - 1) d)` of `d = target - value` (Koenker and Bassett 1978).
    Between the levels the quantile function is taken to be linear, beyond the outer ones constant.
    """

    loss: ClassVar[str] = "pinball"
    level_Q: Tensor

    def __init__(
        self,
        width: int,
        channels: int,
        *,
        levels: Sequence[float] = DEFAULT_LEVELS,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if not levels:
            raise UserError("a quantile head needs at least one level", fix="for the median give levels = [0.5]")
        for level in levels:
            check_probability(level)
        if any(after <= before for before, after in pairwise(levels)):
            raise UserError(f"levels {list(levels)} do not rise", fix="sort them and leave out what stands twice")
        self.levels = tuple(levels)
        # On the device from the start: a captured step cannot fetch it there.
        self.register_buffer("level_Q", torch.tensor(self.levels, dtype=torch.float64), persistent=False)
        self.project = Projection(width, channels, start=[0.0] * len(levels), generator=generator)

    def forward(self, y: Tensor) -> Tensor:
        raw_CQ = self.project(y)
        first, *gaps = F.pad(F.softplus(raw_CQ[..., 1:]), (1, 0)).unbind(-1)
        offset_CQ = torch.stack(list(accumulate(gaps, torch.add, initial=first)), -1)  # cumsum varies on CUDA
        middle = (len(self.levels) - 1) // 2
        return raw_CQ[..., :1] + (offset_CQ - offset_CQ[..., middle : middle + 1])

    def nats(self, params: Tensor, target: Tensor) -> Tensor:
        """The pinball loss, a mean over the levels: there is no density."""
        level_Q = self.level_Q.to(params)
        d_CQ = target[..., None] - params
        return torch.maximum(level_Q * d_CQ, (level_Q - 1) * d_CQ).mean(-1)

    def mean(self, params: Tensor) -> Tensor:
        """The integral of the quantile function."""
        edges = [0.0, *((a + b) / 2 for a, b in pairwise(self.levels)), 1.0]
        return params @ params.new_tensor([b - a for a, b in pairwise(edges)])

    def quantile(self, params: Tensor, q: float) -> Tensor:
        check_probability(q)
        low, high = self.levels[0], self.levels[-1]
        if not low - 1e-9 <= q <= high + 1e-9:
            raise UserError(
                f"the quantile at {q:.6g} is outside of the levels this head has learned, {low} to {high}",
                fix="ask for a narrower interval, or train with wider levels",
            )
        return self._at(params, params.new_full(params.shape[:-1], q))

    def drawn(self, params: Tensor, uniform: Tensor) -> Tensor:
        return self._at(params, uniform[..., 0].to(params))

    def _at(self, params: Tensor, u: Tensor) -> Tensor:
        if len(self.levels) == 1:
            return params[..., 0]
        level_Q = self.level_Q.to(params)
        above = (level_Q < u[..., None]).sum(-1).clamp(1, len(self.levels) - 1)
        share = ((u - level_Q[above - 1]) / (level_Q[above] - level_Q[above - 1])).clamp(0, 1)
        left, right = (params.gather(-1, index[..., None]).squeeze(-1) for index in (above - 1, above))
        return torch.lerp(left, right, share)

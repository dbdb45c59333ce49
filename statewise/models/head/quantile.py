"""Quantiles at fixed levels, without a family of distributions.

C channels, Q levels.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.models.head.contract import RealHead, check_probability
from statewise.models.head.projection import Projection
from statewise.specs import UserError

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

    @torch.no_grad()
    def sample(self, params: Tensor, generator: torch.Generator | None = None) -> Tensor:
        u = torch.rand(params.shape[:-1], generator=generator, dtype=params.dtype, device=params.device)
        return self._at(params, u)

    def _at(self, params: Tensor, u: Tensor) -> Tensor:
        if len(self.levels) == 1:
            return params[..., 0]
        level_Q = self.level_Q.to(params)
        above = torch.searchsorted(level_Q, u.contiguous()).clamp(1, len(self.levels) - 1)
        share = ((u - level_Q[above - 1]) / (level_Q[above] - level_Q[above - 1])).clamp(0, 1)
        left, right = (params.gather(-1, index[..., None]).squeeze(-1) for index in (above - 1, above))
        return torch.lerp(left, right, share)

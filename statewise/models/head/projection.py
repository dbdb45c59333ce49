"""The affine map before a distribution: P numbers for each of C channels, from D features."""

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Described
from statewise.specs import UserError


@final
class Projection(Described):
    """`[..., D]` to `[..., C, P]`, in at least float32; `start` is what the P numbers are for features of 0."""

    def __init__(
        self, width: int, channels: int, *, start: Sequence[float], generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        if channels < 1:
            raise UserError(f"channels = {channels} is not valid, expected 1 or more")
        self.channels = channels
        self.weight_OD = nn.Parameter(torch.empty(channels * len(start), width))
        self.bias_O = nn.Parameter(torch.tensor([float(value) for value in start] * channels))
        nn.init.xavier_uniform_(self.weight_OD, generator=generator)

    def forward(self, y: Tensor) -> Tensor:
        out = F.linear(y, self.weight_OD, self.bias_O)
        return out.to(torch.promote_types(out.dtype, torch.float32)).view(*y.shape[:-1], self.channels, -1)

    def __call__(self, y: Tensor) -> Tensor:
        out: Tensor = super().__call__(y)
        return out

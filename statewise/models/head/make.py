"""A head for real values by its name."""

from collections.abc import Sequence
from typing import Any, Literal, assert_never

import torch

from statewise.models.head.contract import RealHead
from statewise.models.head.gaussian import GaussianHead
from statewise.models.head.point import PointHead
from statewise.models.head.quantile import DEFAULT_LEVELS, QuantileHead
from statewise.models.head.student import StudentHead

RealHeadKind = Literal["point", "gaussian", "student", "quantile"]


def make_real_head(
    kind: RealHeadKind,
    *,
    width: int,
    channels: int,
    levels: Sequence[float] = DEFAULT_LEVELS,
    generator: torch.Generator | None = None,
) -> RealHead[Any]:
    """`levels` matter to a quantile head alone."""
    match kind:
        case "point":
            return PointHead(width, channels, generator=generator)
        case "gaussian":
            return GaussianHead(width, channels, generator=generator)
        case "student":
            return StudentHead(width, channels, generator=generator)
        case "quantile":
            return QuantileHead(width, channels, levels=levels, generator=generator)
        case _:
            assert_never(kind)

"""How gradients flow back in time inside one window: the four policies, as lists of segments.

Between two windows nothing flows (the weights have changed), so a window always begins with a cut.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar, assert_never

import numpy as np
import torch
from torch import Tensor

from statewise.core import State, detach, map_state
from statewise.specs import (
    FixedTruncation,
    FullTruncation,
    RandomTruncation,
    TruncationSpec,
    UnbiasedTruncation,
)

S = TypeVar("S", bound=State)


class Segment(NamedTuple):
    """A stretch of time, and the factor on the gradient that leaves it for what came before."""

    start: int
    stop: int
    flow: float


def segments(policy: TruncationSpec, time: int, *, key: Iterable[int]) -> list[Segment]:
    """Cut `time` tokens. Any chance in it is a function of `key`."""
    match policy:
        case FullTruncation():
            return [Segment(0, time, 0.0)]
        case FixedTruncation(length=length):
            starts = list(range(0, time, length))
            flows = [0.0] * len(starts)
        case RandomTruncation(length=length):
            # Lengths uniform on 1 … 2·length - 1: the mean is `length`, and no segment is endless.
            lengths = _random(key).integers(1, 2 * length, size=time)
            starts = [0, *(int(end) for end in np.cumsum(lengths) if end < time)]
            flows = [0.0] * len(starts)
        case UnbiasedTruncation(length=length, keep=keep):
            starts = list(range(0, time, length))
            kept = _random(key).random(len(starts)) < keep
            flows = [0.0, *(1 / keep if k else 0.0 for k in kept[1:])]
        case _:
            assert_never(policy)
    stops = [*starts[1:], time]
    return [Segment(start, stop, flow) for start, stop, flow in zip(starts, stops, flows, strict=True)]


def _random(key: Iterable[int]) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(list(key)))


def pass_gradient(state: S, flow: float) -> S:
    """The same state; on the way back its gradient is multiplied by `flow` (0 cuts, 1 changes nothing)."""
    if flow == 0.0:
        return detach(state)
    if flow == 1.0:
        return state
    scale: Any = _Scale.apply
    return map_state(lambda leaf: scale(leaf, flow) if leaf.is_floating_point() else leaf, state)


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, flow: float) -> Tensor:
        ctx.flow = flow
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.flow, None

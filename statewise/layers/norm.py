"""Normalisation by name."""

from typing import Literal, assert_never

from torch import nn


def make_norm(kind: Literal["none", "layer", "rms"], width: int, *, epsilon: float | None = None) -> nn.Module:
    """`epsilon` is added to the variance; None: what is usual for the kind."""
    match kind:
        case "none":
            return nn.Identity()
        case "layer":
            return nn.LayerNorm(width, eps=1e-5 if epsilon is None else epsilon)
        case "rms":
            return nn.RMSNorm(width, eps=1e-6 if epsilon is None else epsilon)
        case _:
            assert_never(kind)

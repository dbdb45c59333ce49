"""Normalisation by name."""

from typing import Literal, assert_never

from torch import nn


def make_norm(kind: Literal["none", "layer", "rms"], width: int) -> nn.Module:
    match kind:
        case "none":
            return nn.Identity()
        case "layer":
            return nn.LayerNorm(width)
        case "rms":
            return nn.RMSNorm(width, eps=1e-6)
        case _:
            assert_never(kind)

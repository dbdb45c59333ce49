"""Layers that train while they read, as data."""

from typing import Literal

from pydantic import Field

from statewise.specs.linear import HeadedSpec


class TTTSpec(HeadedSpec):
    """What the two inner models share."""

    inner_norm: bool = Field(True, description="the inner model is x + norm(...); false: the bare map")
    mini_batch: int = Field(16, ge=1, description="tokens whose gradients are taken at the same weights; 1: online")


class TTTLinearSpec(TTTSpec):
    kind: Literal["ttt_linear"] = "ttt_linear"
    rate: float = Field(1.0, gt=0, description="largest inner learning rate, before it is divided by a head's width")


class TTTMLPSpec(TTTSpec):
    kind: Literal["ttt_mlp"] = "ttt_mlp"
    rate: float = Field(0.1, gt=0, description="largest inner learning rate, before it is divided by a head's width")
    ratio: int = Field(4, ge=1, description="hidden width of the inner model, as a multiple of a head's")

"""Layers that train while they read, as data."""

from typing import Literal

from pydantic import Field

from statewise.specs.linear import HeadedSpec
from statewise.specs.stacked import StateSize


class TTTSpec(HeadedSpec):
    """What the two inner models share."""

    inner_norm: bool = Field(True, description="the inner model is x + norm(...); false: the bare map")
    mini_batch: int = Field(16, ge=1, description="tokens whose gradients are taken at the same weights; 1: online")

    def inner_parameters(self) -> int:
        """Of one head's inner model at its start."""
        raise NotImplementedError

    def inner_flops(self) -> int:
        """Of one head's inner model, for one token: forward and backward on the key, a step, and the query."""
        raise NotImplementedError

    def mixer_parameters(self, input_width: int) -> int:
        d, h = self.width, self.heads
        count = 3 * d * (input_width + self.conv) + h * (input_width + 1) + d * d
        return count + h * self.inner_parameters() + (2 * d if self.inner_norm else 0)

    def mixer_flops(self, input_width: int, context: int = 0) -> int:
        d, h = self.width, self.heads
        return 2 * (3 * d + h) * input_width + 2 * d * d + h * self.inner_flops()

    def mixer_state(self, input_width: int, context: int = 0) -> StateSize:
        """The change of the weights, the gradients not yet applied, and how many tokens are left until they are."""
        sums = 2 * self.heads * self.inner_parameters()
        return StateSize(sums + self.window_size(), 1, sums)


class TTTLinearSpec(TTTSpec):
    kind: Literal["ttt_linear"] = "ttt_linear"
    rate: float = Field(1.0, gt=0, description="largest inner learning rate, before it is divided by a head's width")

    def inner_parameters(self) -> int:
        return (self.width // self.heads) ** 2

    def inner_flops(self) -> int:
        """Three products with, or of the size of, the matrix: key, outer product, query."""
        return 6 * self.inner_parameters()


class TTTMLPSpec(TTTSpec):
    kind: Literal["ttt_mlp"] = "ttt_mlp"
    rate: float = Field(0.1, gt=0, description="largest inner learning rate, before it is divided by a head's width")
    ratio: int = Field(4, ge=1, description="hidden width of the inner model, as a multiple of a head's")

    def inner_parameters(self) -> int:
        return 2 * self.ratio * (self.width // self.heads) ** 2

    def inner_flops(self) -> int:
        """Seven of the size of one of its two matrices: key and query through both, two outer products, one back."""
        return 7 * self.inner_parameters()

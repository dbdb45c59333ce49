"""The window model: the equation, a convolution over time, and the choice between them."""

from typing import get_args

from torch import Tensor

from statewise.core import Tool
from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.window import fused, naive
from statewise.kernels.window.naive import Activation as Activation
from statewise.kernels.window.naive import WindowWeights as WindowWeights
from statewise.kernels.window.naive import window_step as window_step


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("window", obstacles=[], wish=wish, traced=dict.fromkeys(get_args(Tool), "fused"))


def window(
    x_BTI: Tensor, past_BSI: Tensor, weights: WindowWeights, lengths_B: Tensor | None = None, *, wish: Wish = "auto"
) -> tuple[Tensor, Tensor]:
    run = fused.window if choice(wish=wish).implementation == "fused" else naive.window
    return run(x_BTI, past_BSI, weights, lengths_B)

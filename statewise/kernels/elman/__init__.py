"""Elman's recurrence: the equation, PyTorch's own op, and the choice between them."""

from torch import Tensor

from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.elman import fused, naive
from statewise.kernels.elman.naive import Activation as Activation
from statewise.kernels.elman.naive import ElmanWeights as ElmanWeights
from statewise.kernels.elman.naive import elman_step as elman_step


def choice(weights: ElmanWeights, *, wish: Wish = "auto") -> Choice:
    return choose("Elman", obstacles=["zoneout"] if weights.zoneout else [], wish=wish)


def elman(
    x_BTI: Tensor, h_BD: Tensor, weights: ElmanWeights, lengths_B: Tensor | None = None, *, wish: Wish = "auto"
) -> tuple[Tensor, Tensor]:
    run = fused.elman if choice(weights, wish=wish).implementation == "fused" else naive.elman
    return run(x_BTI, h_BD, weights, lengths_B)

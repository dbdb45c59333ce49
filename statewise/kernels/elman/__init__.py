"""Elman's recurrence: the equation, PyTorch's own op, a form for the CPU, and the choice between them."""

from torch import Tensor

from statewise.kernels.choice import Choice, Implementation, Wish, choose
from statewise.kernels.elman import batched, fused, naive
from statewise.kernels.elman.naive import Activation as Activation
from statewise.kernels.elman.naive import ElmanWeights as ElmanWeights
from statewise.kernels.elman.naive import elman_step as elman_step


def choice(weights: ElmanWeights, *, wish: Wish = "auto") -> Choice:
    fast: list[Implementation] = ["batched", "fused"] if weights.u_DD.device.type == "cpu" else ["fused"]
    return choose("Elman", obstacles=["zoneout"] if weights.zoneout else [], wish=wish, fast=fast)


def elman(
    x_BTI: Tensor, h_BD: Tensor, weights: ElmanWeights, lengths_B: Tensor | None = None, *, wish: Wish = "auto"
) -> tuple[Tensor, Tensor]:
    run = {"naive": naive.elman, "fused": fused.elman, "batched": batched.elman}
    return run[choice(weights, wish=wish).implementation](x_BTI, h_BD, weights, lengths_B)

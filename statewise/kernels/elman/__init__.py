"""Elman's recurrence: the equation, PyTorch's own op, a form for the CPU, a kernel for Hopper GPUs, and the choice."""

from torch import Tensor

from statewise.kernels.choice import Choice, Implementation, Wish, choose
from statewise.kernels.elman import batched, fused, naive, persistent
from statewise.kernels.elman.batched import elman_moments as elman_moments
from statewise.kernels.elman.naive import Activation as Activation
from statewise.kernels.elman.naive import ElmanWeights as ElmanWeights
from statewise.kernels.elman.naive import elman_step as elman_step
from statewise.kernels.persistent import with_persistent


def choice(weights: ElmanWeights, *, wish: Wish = "auto", batch: int = 1) -> Choice:
    others: list[Implementation] = ["batched", "fused"] if weights.u_DD.device.type == "cpu" else ["fused"]
    fast, absent = with_persistent(others, weights.activation, weights.u_DD, batch=batch)
    return choose("Elman", obstacles=["zoneout"] if weights.zoneout else [], wish=wish, fast=fast, absent=absent)


def elman(
    x_BTI: Tensor, h_BD: Tensor, weights: ElmanWeights, lengths_B: Tensor | None = None, *, wish: Wish = "auto"
) -> tuple[Tensor, Tensor]:
    run = {"naive": naive.elman, "fused": fused.elman, "batched": batched.elman, "persistent": persistent.elman}
    chosen = choice(weights, wish=wish, batch=len(x_BTI)).implementation
    return run[chosen](x_BTI, h_BD, weights, lengths_B)

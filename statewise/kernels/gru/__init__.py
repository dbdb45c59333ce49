"""The GRU: the equation, PyTorch's own op, a form for the CPU, and the choice between them."""

from torch import Tensor

from statewise.kernels.choice import Choice, Implementation, Wish, choose
from statewise.kernels.gru import batched, fused, naive
from statewise.kernels.gru.naive import GRUWeights as GRUWeights
from statewise.kernels.gru.naive import gru_step as gru_step


def choice(weights: GRUWeights, *, wish: Wish = "auto") -> Choice:
    obstacles = {"reset before the product": weights.b_u_D is None, "zoneout": weights.zoneout > 0}
    fast: list[Implementation] = ["batched", "fused"] if weights.u_GD.device.type == "cpu" else ["fused"]
    return choose("GRU", obstacles=[name for name, present in obstacles.items() if present], wish=wish, fast=fast)


def gru(
    x_BTI: Tensor, h_BD: Tensor, weights: GRUWeights, lengths_B: Tensor | None = None, *, wish: Wish = "auto"
) -> tuple[Tensor, Tensor]:
    run = {"naive": naive.gru, "fused": fused.gru, "batched": batched.gru}
    return run[choice(weights, wish=wish).implementation](x_BTI, h_BD, weights, lengths_B)

"""The GRU: the equation, PyTorch's own op, and the choice between them."""

from torch import Tensor

from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.gru import fused, naive
from statewise.kernels.gru.naive import GRUWeights as GRUWeights
from statewise.kernels.gru.naive import gru_step as gru_step


def choice(weights: GRUWeights, *, wish: Wish = "auto") -> Choice:
    obstacles = {"reset before the product": weights.b_u_D is None, "zoneout": weights.zoneout > 0}
    return choose("GRU", obstacles=[name for name, present in obstacles.items() if present], wish=wish)


def gru(
    x_BTI: Tensor, h_BD: Tensor, weights: GRUWeights, lengths_B: Tensor | None = None, *, wish: Wish = "auto"
) -> tuple[Tensor, Tensor]:
    run = fused.gru if choice(weights, wish=wish).implementation == "fused" else naive.gru
    return run(x_BTI, h_BD, weights, lengths_B)

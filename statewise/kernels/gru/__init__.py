"""The GRU: the equation, PyTorch's own op, a form for the CPU, two for GPUs, and the choice."""

from torch import Tensor

from statewise.kernels.choice import RECURRENT_OP, Choice, Implementation, Wish, choose
from statewise.kernels.gru import batched, naive
from statewise.kernels.gru.batched import gru_packed as gru_packed
from statewise.kernels.gru.naive import GRUWeights as GRUWeights
from statewise.kernels.gru.naive import gru_step as gru_step
from statewise.kernels.persistent import with_persistent
from statewise.kernels.recurrent import Layer, Result, cached_choice, implementations, read_vector
from statewise.kernels.stepped import with_stepped


def choice(weights: GRUWeights, *, wish: Wish = "auto", batch: int = 1) -> Choice:
    obstacles = {"reset before the product": weights.b_u_D is None, "zoneout": weights.zoneout > 0}
    others: list[Implementation] = ["batched", "fused"] if weights.u_GD.device.type == "cpu" else ["fused"]
    fast, absent = with_persistent(others, "gru", weights.u_GD, batch=batch)
    fast, absent = with_stepped(fast, absent, "gru", weights.u_GD, batch=batch, wish=wish)
    here = [name for name, present in obstacles.items() if present]
    return choose("GRU", obstacles=here, wish=wish, fast=fast, absent=absent, traced=RECURRENT_OP)


def chosen(weights: GRUWeights, *, wish: Wish = "auto", batch: int = 1) -> Choice:
    """`choice`, cached."""
    variant = (weights.b_u_D is None, weights.zoneout > 0, wish)
    return cached_choice("GRU", lambda: choice(weights, wish=wish, batch=batch), weights.u_GD, variant, batch=batch)


def _layer(weights: GRUWeights) -> Layer:
    assert weights.b_u_D is not None, "the choice sends a reset before the product to naive"

    def equation(layer: Layer, x_BTI: Tensor, state: tuple[Tensor], lengths_B: Tensor | None) -> Result:
        return naive.gru(x_BTI, *state, GRUWeights(layer.w_GI, layer.u_GP, layer.b_G, layer.b_u_D), lengths_B)

    return Layer("gru", equation, weights.w_GI, weights.u_GD, weights.b_G, weights.b_u_D)


IMPLEMENTATIONS = {"naive": naive.gru, "batched": batched.gru, **implementations(_layer)}


def gru(
    x_BTI: Tensor, h_BD: Tensor | None, weights: GRUWeights, lengths_B: Tensor | None = None, *, wish: Wish = "auto"
) -> tuple[Tensor, Tensor]:
    """Outputs and last state. Without a state it begins at zeros, which the kernels need not be given."""
    return read_vector(IMPLEMENTATIONS, chosen, x_BTI, h_BD, weights, lengths_B, wish)

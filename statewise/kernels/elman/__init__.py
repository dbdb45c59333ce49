"""Elman's recurrence: the equation, PyTorch's own op, a form for the CPU, two for GPUs, and the choice between them."""

from torch import Tensor

from statewise.kernels.choice import RECURRENT_OP, Choice, Implementation, Wish, choose
from statewise.kernels.elman import batched, naive
from statewise.kernels.elman.batched import elman_packed as elman_packed
from statewise.kernels.elman.naive import Activation as Activation
from statewise.kernels.elman.naive import ElmanWeights as ElmanWeights
from statewise.kernels.elman.naive import elman_step as elman_step
from statewise.kernels.persistent import with_persistent
from statewise.kernels.recurrent import Layer, Result, cached_choice, implementations, read_vector
from statewise.kernels.stepped import with_stepped


def choice(weights: ElmanWeights, *, wish: Wish = "auto", batch: int = 1) -> Choice:
    others: list[Implementation] = ["batched", "fused"] if weights.u_DD.device.type == "cpu" else ["fused"]
    fast, absent = with_persistent(others, weights.activation, weights.u_DD, batch=batch)
    fast, absent = with_stepped(fast, absent, weights.activation, weights.u_DD, batch=batch, wish=wish)
    here = ["zoneout"] if weights.zoneout else []
    return choose("Elman", obstacles=here, wish=wish, fast=fast, absent=absent, traced=RECURRENT_OP)


def chosen(weights: ElmanWeights, *, wish: Wish = "auto", batch: int = 1) -> Choice:
    """`choice`, cached."""
    variant = (weights.activation, weights.zoneout > 0, wish)
    return cached_choice("Elman", lambda: choice(weights, wish=wish, batch=batch), weights.u_DD, variant, batch=batch)


def _layer(weights: ElmanWeights) -> Layer:
    def equation(layer: Layer, x_BTI: Tensor, state: tuple[Tensor], lengths_B: Tensor | None) -> Result:
        again = ElmanWeights(layer.w_GI, layer.u_GP, layer.b_G, weights.activation)
        return naive.elman(x_BTI, *state, again, lengths_B)

    return Layer(weights.activation, equation, weights.w_DI, weights.u_DD, weights.b_D)


IMPLEMENTATIONS = {"naive": naive.elman, "batched": batched.elman, **implementations(_layer)}


def elman(
    x_BTI: Tensor, h_BD: Tensor | None, weights: ElmanWeights, lengths_B: Tensor | None = None, *, wish: Wish = "auto"
) -> tuple[Tensor, Tensor]:
    """Outputs and last state. Without a state it begins at zeros, which the kernels need not be given."""
    return read_vector(IMPLEMENTATIONS, chosen, x_BTI, h_BD, weights, lengths_B, wish)

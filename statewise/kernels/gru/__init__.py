"""The GRU: the equation, PyTorch's own op, a form for the CPU, two for GPUs, and the choice."""

from torch import Tensor

from statewise.kernels.choice import RECURRENT_OP, Choice, Implementation, Wish, choose
from statewise.kernels.choice_cache import cached_choice, traceable
from statewise.kernels.gru import batched, fused, naive, persistent, stepped
from statewise.kernels.gru.batched import gru_moments as gru_moments
from statewise.kernels.gru.naive import GRUWeights as GRUWeights
from statewise.kernels.gru.naive import gru_step as gru_step
from statewise.kernels.persistent import with_persistent
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


_FORMS = {"naive": naive, "fused": fused, "batched": batched, "persistent": persistent, "stepped": stepped}


def gru(
    x_BTI: Tensor, h_BD: Tensor | None, weights: GRUWeights, lengths_B: Tensor | None = None, *, wish: Wish = "auto"
) -> tuple[Tensor, Tensor]:
    """Outputs and last state. Without a state it begins at zeros, which the kernels need not be given."""
    batch = x_BTI.shape[0]
    implementation = chosen(weights, wish=traceable(wish, lengths_B), batch=batch).implementation
    if implementation != "persistent" and h_BD is None:
        h_BD = weights.rest(batch)
    found: tuple[Tensor, Tensor] = _FORMS[implementation].gru(x_BTI, h_BD, weights, lengths_B)
    return found

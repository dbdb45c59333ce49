"""Attention over a list: the equation, PyTorch's own op, and the choice between them."""

from torch import Tensor

from statewise.kernels.attention import fused, naive
from statewise.kernels.attention.append import append as append
from statewise.kernels.attention.room import used_slots as used_slots
from statewise.kernels.attention.room import with_room as with_room
from statewise.kernels.attention.room import write_ as write_
from statewise.kernels.attention.sight import Sight as Sight
from statewise.kernels.choice import Choice, Wish, choose


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("attention", obstacles=[], wish=wish)


def attention(
    q_BTHK: Tensor,
    k_BSGK: Tensor,
    v_BSGK: Tensor,
    sight: Sight,
    *,
    scale: float,
    dropout: float = 0.0,
    wish: Wish = "auto",
) -> Tensor:
    """`dropout` is that of attention's weights, for whoever is training; else leave it at 0."""
    run = fused.attention if choice(wish=wish).implementation == "fused" else naive.attention
    # A list may be kept in another precision than queries are computed in (autocast).
    return run(q_BTHK, k_BSGK.to(q_BTHK.dtype), v_BSGK.to(q_BTHK.dtype), sight, scale, dropout)

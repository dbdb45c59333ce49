"""Attention over a list: the equation, PyTorch's own op, and the choice between them."""

from torch import Tensor

from statewise.kernels.attention import fused, naive
from statewise.kernels.attention.append import append as append
from statewise.kernels.attention.sight import Sight as Sight
from statewise.kernels.choice import Choice, Wish, choose


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("attention", obstacles=[], wish=wish)


def attention(
    q_BTHK: Tensor, k_BSGK: Tensor, v_BSGK: Tensor, sight: Sight, *, scale: float, wish: Wish = "auto"
) -> Tensor:
    run = fused.attention if choice(wish=wish).implementation == "fused" else naive.attention
    # A list may be kept in another precision than queries are computed in (autocast).
    return run(q_BTHK, k_BSGK.to(q_BTHK.dtype), v_BSGK.to(q_BTHK.dtype), sight, scale)

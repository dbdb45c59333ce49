"""The scan `h_t = a_t · h_{t-1} + b_t`: the equation, a parallel form, one for GPUs, and the choice between them."""

from torch import Tensor

from statewise.kernels.along_time import no_autocast, wide
from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.scan import naive, parallel
from statewise.kernels.with_triton import load, with_triton


def choice(like: Tensor, *, wish: Wish = "auto") -> Choice:
    fast, absent = with_triton(["batched"], like)
    return choose("scan", obstacles=[], wish=wish, fast=fast, absent=absent)


def scan(
    a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, lengths_B: Tensor | None = None, *, wish: Wish = "auto"
) -> tuple[Tensor, Tensor]:
    """All h, and the last one; both in the dtype of the state that came in."""
    chosen = choice(h_BD, wish=wish).implementation
    run = load("scan").scan if chosen == "triton" else naive.scan if chosen == "naive" else parallel.scan
    with no_autocast(h_BD):
        a, b, h = wide(a_BTD, b_BTD, h_BD)
        y_BTD, after_BD = run(a, b, h, lengths_B)
    return y_BTD.to(h_BD), after_BD.to(h_BD)

"""The scan `h_t = a_t · h_{t-1} + b_t`: the equation, a parallel form, and the choice between them."""

from torch import Tensor

from statewise.kernels.along_time import no_autocast, wide
from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.scan import naive, parallel


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("scan", obstacles=[], wish=wish, fast=("batched",))


def scan(
    a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, lengths_B: Tensor | None = None, *, wish: Wish = "auto"
) -> tuple[Tensor, Tensor]:
    """All h, and the last one; both in the dtype of the state that came in."""
    run = naive.scan if choice(wish=wish).implementation == "naive" else parallel.scan
    with no_autocast(h_BD):
        a, b, h = wide(a_BTD, b_BTD, h_BD)
        y_BTD, after_BD = run(a, b, h, lengths_B)
    return y_BTD.to(h_BD), after_BD.to(h_BD)

"""The scan `h_t = a_t · h_{t-1} + b_t`: the equation, a parallel form, one for GPUs, and the choice between them."""

from torch import Tensor

from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.scan import naive, parallel
from statewise.kernels.time_axis import no_autocast, wide
from statewise.kernels.with_triton import load, with_triton


def choice(like: Tensor, *, wish: Wish = "auto") -> Choice:
    fast, absent = with_triton(["batched"], like)
    return choose("scan", obstacles=[], wish=wish, fast=fast, absent=absent)


def scan(
    a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, lengths_B: Tensor | None = None, *, wish: Wish = "auto"
) -> tuple[Tensor, Tensor]:
    """All h, and the last one; both in float32 at least."""
    chosen = choice(h_BD, wish=wish).implementation
    with no_autocast(h_BD):
        if chosen == "triton":  # which widens in registers what it reads
            y_BTD, after_BD = load("scan").scan(a_BTD, b_BTD, *wide(h_BD), lengths_B)
        else:
            run = naive.scan if chosen == "naive" else parallel.scan
            a, b, h = wide(a_BTD, b_BTD, h_BD)
            y_BTD, after_BD = run(a, b, h, lengths_B)
    return y_BTD, after_BD


def gated_scan(
    z_BTD: Tensor, x_BTD: Tensor, h_BD: Tensor, lengths_B: Tensor | None = None, *, wish: Wish = "auto"
) -> tuple[Tensor, Tensor]:
    """The scan of `h_t = (1 - σ(z_t)) · h_{t-1} + σ(z_t) · x_t`."""
    if choice(h_BD, wish=wish).implementation != "triton":
        return scan(*naive.gates(z_BTD, x_BTD), h_BD, lengths_B, wish=wish)
    with no_autocast(h_BD):  # gates in registers: they are never written down
        y_BTD, after_BD = load("scan").gated_scan(z_BTD, x_BTD, *wide(h_BD), lengths_B)
    return y_BTD, after_BD

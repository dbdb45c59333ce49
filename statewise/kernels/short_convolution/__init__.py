"""A causal convolution over the last few time steps: the equation, one kernel for GPUs, and the choice between them."""

from torch import Tensor

from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.short_convolution import naive
from statewise.kernels.with_triton import load, with_triton


def choice(like: Tensor, *, wish: Wish = "auto") -> Choice:
    """The equation takes all time steps at once as it is, and so it is the batched form too."""
    fast, absent = with_triton(["batched"], like)
    return choose("short convolution", obstacles=[], wish=wish, fast=fast, absent=absent)


def short_convolution(
    x_BTC: Tensor,
    window_BWC: Tensor,
    weight_CK: Tensor,
    lengths_B: Tensor | None = None,
    *,
    silu: bool = False,
    wish: Wish = "auto",
) -> tuple[Tensor, Tensor]:
    """`y_t = Σ_j w_j · x_{t-W+j}`, with `silu` its SiLU, in the dtype of x; and the last W inputs of each row."""
    if choice(x_BTC, wish=wish).implementation == "triton":
        y_BTC, after_BWC = load("short_convolution").short_convolution(x_BTC, window_BWC, weight_CK, lengths_B, silu)
    else:
        y_BTC, after_BWC = naive.short_convolution(x_BTC, window_BWC, weight_CK, lengths_B, silu)
    return y_BTC, after_BWC.to(window_BWC)

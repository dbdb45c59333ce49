"""The gated delta rule: the equation, the chunked form, and the choice between them."""

from torch import Tensor

from statewise.kernels.along_time import no_autocast, wide
from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.gated_delta import chunked, naive


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("gated delta rule", obstacles=[], wish=wish, fast=("batched",))


def gated_delta(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    beta_BTH: Tensor,
    g_BTH: Tensor,
    s_BHKV: Tensor,
    lengths_B: Tensor | None = None,
    *,
    wish: Wish = "auto",
) -> tuple[Tensor, Tensor]:
    """What is read at each moment, and the state after the last; both in the dtype of the state that came in."""
    run = naive.gated_delta if choice(wish=wish).implementation == "naive" else chunked.gated_delta
    with no_autocast(s_BHKV):
        q, k, v, beta, g, s = wide(q_BTHK, k_BTHK, v_BTHV, beta_BTH, g_BTH, s_BHKV)
        y_BTHV, after_BHKV = run(q, k, v, beta, g, s, lengths_B)
    return y_BTHV.to(s_BHKV), after_BHKV.to(s_BHKV)

"""Linear attention with an optional decay: the equation, the chunked form, and the choice between them.

`quadratic.py` is the third form, for comparison.
"""

from torch import Tensor

from statewise.kernels.along_time import no_autocast, wide
from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.linear_attention import chunked, naive


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("linear attention", obstacles=[], wish=wish, fast=("batched",))


def linear_attention(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    g_BTH: Tensor,
    s_BHKV: Tensor,
    lengths_B: Tensor | None = None,
    *,
    wish: Wish = "auto",
) -> tuple[Tensor, Tensor]:
    """What is read at each moment, and the state after the last; both in the dtype of the state that came in."""
    run = naive.linear_attention if choice(wish=wish).implementation == "naive" else chunked.linear_attention
    with no_autocast(s_BHKV):
        q, k, v, g, s = wide(q_BTHK, k_BTHK, v_BTHV, g_BTH, s_BHKV)
        y_BTHV, after_BHKV = run(q, k, v, g, s, lengths_B)
    return y_BTHV.to(s_BHKV), after_BHKV.to(s_BHKV)

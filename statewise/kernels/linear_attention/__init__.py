"""Linear attention with an optional decay: the equation, the chunked form, one for GPUs, and the choice between them.

`quadratic.py` is the third form, for comparison.
"""

from torch import Tensor

from statewise.kernels.associative_memory import Form, run, too_wide
from statewise.kernels.choice import PLAIN_CHUNKS, Choice, Wish, choose
from statewise.kernels.linear_attention import chunked, naive
from statewise.kernels.with_triton import with_triton

_FORMS: dict[str, Form] = {"naive": naive.linear_attention, "batched": chunked.linear_attention}


def choice(state_KV: Tensor, *, wish: Wish = "auto") -> Choice:
    """By the device and dtype of a state, and by the width of its keys."""
    fast, absent = with_triton(["batched"], state_KV, variant=too_wide(state_KV))
    return choose("linear attention", obstacles=[], wish=wish, fast=fast, absent=absent, traced=PLAIN_CHUNKS)


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
    """What is read at each time step, and the state after the last; see `associative_memory.run`."""
    inputs = (q_BTHK, k_BTHK, v_BTHV, g_BTH)
    return run("linear_attention", choice(s_BHKV, wish=wish), _FORMS, inputs, s_BHKV, lengths_B)

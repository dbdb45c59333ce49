"""The gated delta rule: the equation, the chunked form, one for GPUs, and the choice between them."""

from torch import Tensor

from statewise.core import Tool
from statewise.kernels.choice import PLAIN_CHUNKS, Choice, Implementation, Wish, choose
from statewise.kernels.gated_delta import chunked, naive
from statewise.kernels.time_axis import is_autocast, no_autocast, wide
from statewise.kernels.with_triton import load, with_triton

WIDEST = 128  # a key, whose chunk the registers of one program hold


def choice(state_KV: Tensor, *, wish: Wish = "auto") -> Choice:
    """By the device and dtype of a state, and by the width of its keys."""
    variant = f"it takes keys up to {WIDEST} wide" if state_KV.shape[-2] > WIDEST else None
    fast, absent = with_triton(["batched"], state_KV, variant=variant)
    # torch.compile is mistaken in how gradients of chunks lie in memory, where a softplus comes before them.
    traced: dict[Tool, Implementation] = {**PLAIN_CHUNKS, "torch.compile": "naive"}
    return choose("gated delta rule", obstacles=[], wish=wish, fast=fast, absent=absent, traced=traced)


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
    """What is read at each time step, and the state after the last; both in float32 at least."""
    chosen = choice(s_BHKV, wish=wish).implementation
    exact = not is_autocast(s_BHKV)
    with no_autocast(s_BHKV):
        inputs = q_BTHK, k_BTHK, v_BTHV, beta_BTH, g_BTH
        if chosen == "triton":  # which widens in registers what it reads
            y_BTHV, after_BHKV = load("gated_delta").gated_delta(*inputs, *wide(s_BHKV), lengths_B, exact=exact)
        else:
            run = naive.gated_delta if chosen == "naive" else chunked.gated_delta
            q, k, v, beta, g, s = wide(*inputs, s_BHKV)
            y_BTHV, after_BHKV = run(q, k, v, beta, g, s, lengths_B)
    return y_BTHV, after_BHKV

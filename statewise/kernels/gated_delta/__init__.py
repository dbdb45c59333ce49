"""The gated delta rule: the equation, the chunked form, one for GPUs, and the choice between them."""

from torch import Tensor

from statewise.core import Tool
from statewise.kernels.associative_memory import Form, run, too_wide
from statewise.kernels.choice import PLAIN_CHUNKS, Choice, Implementation, Wish, choose
from statewise.kernels.gated_delta import chunked, naive
from statewise.kernels.with_triton import with_triton

_FORMS: dict[str, Form] = {"naive": naive.gated_delta, "batched": chunked.gated_delta}


def choice(state_KV: Tensor, *, wish: Wish = "auto") -> Choice:
    """By the device and dtype of a state, and by the width of its keys."""
    fast, absent = with_triton(["batched"], state_KV, variant=too_wide(state_KV))
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
    """What is read at each time step, and the state after the last; see `associative_memory.run`."""
    inputs = (q_BTHK, k_BTHK, v_BTHV, beta_BTH, g_BTH)
    return run("gated_delta", choice(s_BHKV, wish=wish), _FORMS, inputs, s_BHKV, lengths_B)

"""Linear attention with an optional decay: the equation, the chunked form, one for GPUs, and the choice between them.

`quadratic.py` is the third form, for comparison.
"""

from torch import Tensor

from statewise.kernels.associative_memory import Form, run
from statewise.kernels.choice import PLAIN_CHUNKS, Choice, Wish, choose
from statewise.kernels.linear_attention import chunked, naive
from statewise.kernels.with_triton import with_triton

LARGEST = 64 * 128  # numbers in a head's state, which the registers of one program hold

_FORMS: dict[str, Form] = {"naive": naive.linear_attention, "batched": chunked.linear_attention}


def choice(state_KV: Tensor, *, wish: Wish = "auto") -> Choice:
    """By the device and dtype of a state, and by the size of its matrices."""
    sizes = map(int, state_KV.shape[-2:])  # to torch.jit.trace, tensors
    key, value = (max(16, 1 << (size - 1).bit_length()) for size in sizes)
    variant = f"it takes states up to {LARGEST} numbers a head" if key * value > LARGEST else None
    fast, absent = with_triton(["batched"], state_KV, variant=variant)
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
    """What is read at each time step, and the state after the last; both in float32 at least."""
    inputs = (q_BTHK, k_BTHK, v_BTHV, g_BTH)
    return run("linear_attention", choice(s_BHKV, wish=wish), _FORMS, inputs, s_BHKV, lengths_B)

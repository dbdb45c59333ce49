"""Around the Triton kernels of test-time training, for both inner models: states in and out, and second gradients.

B batch, T time, H heads, K width of a head.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from statewise.kernels.associative_memory import Inputs
from statewise.kernels.gradients import is_wanted, through
from statewise.kernels.time_axis import wide
from statewise.kernels.ttt import dual
from statewise.kernels.ttt.inner import EPS, InnerNorm
from statewise.kernels.ttt.naive import Carried


def tile_side(size: int) -> int:
    """A power of two, and no less than the units for products take."""
    return max(16, int(triton.next_power_of_2(size)))


def tile_sizes(q_BTHK: Tensor, mini_batch: int, *, keep: int, warps: int) -> dict[str, Any]:
    """Constants of both kernels; weights are written down every `keep` mini-batches."""
    head = q_BTHK.shape[-1]
    exact = q_BTHK.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    return {
        "C": mini_batch,
        "K": head,
        "CP": tile_side(mini_batch),
        "KP": tile_side(head),
        "KEEP": keep,
        "EPS": EPS,
        # Of half precision, tf32 keeps every bit; of float32, three products of it keep nearly all.
        "PRECISION": "tf32x3" if exact else "tf32",
        "num_warps": warps,
    }


def run_kernel(
    apply: Callable[..., tuple[Tensor, ...]],
    inputs: Inputs,
    state: Carried,
    start: tuple[Tensor, ...],
    norm: InnerNorm | None,
    mini_batch: int,
    lengths_B: Tensor | None,
) -> tuple[Tensor, Carried]:
    """`dual.ttt` by an autograd function that takes its tensors one by one; `second_gradient` has the same order."""
    q_BTHK, k_BTHK, v_BTHK, rate_BTH = inputs
    length_B = torch.full_like(state.left_B, q_BTHK.shape[1])
    if lengths_B is not None:
        length_B = torch.minimum(lengths_B.to(length_B), length_B)
    place_B = mini_batch - state.left_B
    qkv = (q_BTHK, k_BTHK, v_BTHK)
    # As slices of one projection they lie alike and are read where they are.
    if q_BTHK.stride(-1) != 1 or any(part.stride() != q_BTHK.stride() for part in qkv):
        qkv = (q_BTHK.contiguous(), k_BTHK.contiguous(), v_BTHK.contiguous())
    others = tuple(part.contiguous() for part in (rate_BTH, *state.change, *state.pending, *start))
    gain, bias = (None, None) if norm is None else (norm.gain_HK.contiguous(), norm.bias_HK.contiguous())
    ragged = lengths_B is not None
    save = is_wanted((*qkv, *others, gain, bias))  # inside a Function this cannot be asked
    y_BTHK, *after = apply(*qkv, *others, gain, bias, place_B, length_B, mini_batch, ragged, save)
    left_B = mini_batch - (place_B + length_B) % mini_batch
    return y_BTHK, Carried(tuple(after[: len(start)]), tuple(after[len(start) :]), left_B)


def second_gradient(ctx: Any, gradients: tuple[Tensor, ...], *, matrices: int) -> tuple[Tensor | None, ...]:
    """The backward that can be differentiated again, through `dual`. `matrices`: how many the inner model has."""
    count = 4 + 3 * matrices + 2
    inputs, (place_B, length_B) = ctx.saved_tensors[:count], ctx.saved_tensors[count : count + 2]
    q, k, v, rate, *held, gain, bias = inputs
    change, pending, start = (tuple(held[at * matrices : (at + 1) * matrices]) for at in range(3))
    state = Carried(change, pending, ctx.mini_batch - place_B)
    norm = None if gain is None else InnerNorm(gain, bias)
    y, after = dual.ttt(wide(q, k, v, rate), state, start, norm, ctx.mini_batch, length_B)
    return *through((y, *after.change, *after.pending), inputs, gradients), None, None, None, None, None

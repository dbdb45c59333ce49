"""Test-time training of an inner MLP on a GPU: one program a row and head walks through all mini-batches.

As `triton.py` does for a linear one, and by the mathematics of `dual.py`. Two matrices and their gradients are more
than registers hold, so they stay in memory of each program's own, which is small enough for the cache, and are taken
in blocks of hidden units. A pass over the blocks forms a product that sums over all hidden units; what the next pass
needs of a block is computed again there.

B batch, T time, H heads, K width of a head, M hidden units, C slots of a mini-batch; KP, CP filled up, MB one block.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from statewise.kernels.time_axis import unwritten
from statewise.kernels.ttt.naive import Carried
from statewise.kernels.ttt.triton_autograd import run_kernel, second_gradient, tile_side, tile_sizes
from statewise.kernels.ttt.triton_inner import (
    dot,
    error,
    gelu,
    gelu_slope,
    learned_norm,
    normalised,
    output,
    row,
    tile,
    tokens,
)
from statewise.kernels.ttt.triton_mlp_backward import backward_kernel
from statewise.kernels.with_triton import FUSED

_SPARE = 8  # mini-batches from one set of weights that is written down to the next, where memory is to be spared
_SHARE = 64  # which is where all of them would take more than such a part of it
_BLOCK = 32  # hidden units that are taken at once; with twice as many, registers spill to memory


@triton.jit(do_not_specialize=["T", "H", "kept_count"])
def _forward(
    q_ptr, k_ptr, v_ptr, rate_ptr, w1_ptr, w2_ptr, p1_ptr, p2_ptr, gain_ptr, bias_ptr, place_ptr, length_ptr,
    y_ptr, kept1_ptr, kept2_ptr,
    in_row, in_time, in_head, T, H, M, kept_count,
    C: tl.constexpr, K: tl.constexpr, CP: tl.constexpr, KP: tl.constexpr, MB: tl.constexpr, KEEP: tl.constexpr,
    NORM: tl.constexpr, SAVE: tl.constexpr, EPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    b, h = program // H, program % H
    c, x = tl.arange(0, CP), tl.arange(0, KP)
    inside = (x < K)[None, :]
    w1_ptr += program * K * M
    w2_ptr += program * K * M
    p1_ptr += program * K * M
    p2_ptr += program * K * M
    gain, bias = learned_norm(gain_ptr, bias_ptr, h, x, K, KP, NORM)
    place, length, end, earlier = row(place_ptr, length_ptr, b, c)
    for n in range((end + C - 1) // C):
        _, at, at_in, _, here, rate = tokens(
            rate_ptr, b, h, n, place, length, in_row, in_time, in_head, T, H, c, x, inside, C, K
        )
        q = tl.load(q_ptr + at_in, mask=here, other=0.0).to(tl.float32)
        k = tl.load(k_ptr + at_in, mask=here, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at_in, mask=here, other=0.0).to(tl.float32)
        rate = rate[:, None]
        r = output(k, w1_ptr, w2_ptr, x, M, K, KP, CP, MB, PRECISION)
        e2 = error(k, v, r, gain, bias, inside, K, NORM, EPS)
        s2 = rate * e2
        a1 = tl.where(earlier, dot(q, tl.trans(k), PRECISION), 0.0)
        full = end >= (n + 1) * C
        z2 = tl.zeros([CP, KP], tl.float32)
        a2 = tl.zeros([CP, CP], tl.float32)
        for begin in range(0, M, MB):
            down, up, at1, at2 = tile(begin, x, M, K, MB)
            w1 = tl.load(w1_ptr + at1, mask=down, other=0.0)
            w2 = tl.load(w2_ptr + at2, mask=up, other=0.0)
            p1 = tl.load(p1_ptr + at1, mask=down & (n == 0), other=0.0)
            p2 = tl.load(p2_ptr + at2, mask=up & (n == 0), other=0.0)
            if SAVE and n % KEEP == 0:
                base = (program * kept_count + n // KEEP) * K * M
                tl.store(kept1_ptr + base + at1, w1, mask=down)
                tl.store(kept2_ptr + base + at2, w2, mask=up)
            a = dot(k, w1, PRECISION)
            hidden = gelu(a)
            s1 = rate * dot(e2, tl.trans(w2), PRECISION) * gelu_slope(a)
            z1 = gelu(dot(q, w1 - p1, PRECISION) - dot(a1, s1, PRECISION))
            z2 += dot(z1, w2 - p2, PRECISION)
            a2 += dot(z1, tl.trans(hidden), PRECISION)
            p1 += dot(tl.trans(k), s1, PRECISION)
            p2 += dot(tl.trans(hidden), s2, PRECISION)
            tl.store(w1_ptr + at1, w1 - p1, mask=down & full)
            tl.store(w2_ptr + at2, w2 - p2, mask=up & full)
            tl.store(p1_ptr + at1, tl.where(full, 0.0, p1), mask=down & ((n == 0) | (end < (n + 1) * C)))
            tl.store(p2_ptr + at2, tl.where(full, 0.0, p2), mask=up & ((n == 0) | (end < (n + 1) * C)))
        z2 -= dot(tl.where(earlier, a2, 0.0), s2, PRECISION)
        y = z2
        if NORM:
            hat, _ = normalised(z2, inside, K, EPS)
            y = q + hat * gain + bias
        tl.store(y_ptr + at, y, mask=here)
        tl.debug_barrier()  # the next mini-batch reads weights that other threads wrote


def _keep(q_BTHK: Tensor, hidden: int, mini_batch: int) -> int:
    """Every set of weights is written down, or one in a few: then those between are computed again on the way back."""
    batch, time, heads, head = q_BTHK.shape
    needed = 8 * head * hidden * batch * heads * (time // mini_batch + 1)
    if q_BTHK.device.type == "cuda":
        there = torch.cuda.get_device_properties(q_BTHK.device).total_memory
        return 1 if needed <= there // _SHARE else _SPARE
    return _SPARE


def _sizes(q_BTHK: Tensor, hidden: int, mini_batch: int) -> dict[str, Any]:
    keep, warps = _keep(q_BTHK, hidden, mini_batch), 4 if q_BTHK.shape[-1] <= 64 else 8
    # One stage: tiles that are loaded ahead would not fit into the shared memory.
    return {
        **tile_sizes(q_BTHK, mini_batch, keep=keep, warps=warps),
        "MB": min(_BLOCK, tile_side(hidden)),
        "num_stages": 1,
    }


class _Walk(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        rate: Tensor,
        change1: Tensor,
        change2: Tensor,
        pending1: Tensor,
        pending2: Tensor,
        start1: Tensor,
        start2: Tensor,
        gain: Tensor | None,
        bias: Tensor | None,
        place_B: Tensor,
        length_B: Tensor,
        mini_batch: int,
        ragged: bool,
        save: bool,
    ) -> tuple[Tensor, ...]:
        batch, time, heads, _ = q.shape
        hidden = start1.shape[-1]
        sizes = _sizes(q, hidden, mini_batch)
        kept_count = triton.cdiv(triton.cdiv(time + mini_batch, mini_batch), sizes["KEEP"])
        y = unwritten(ragged)(q.shape, dtype=torch.float32, device=q.device)
        w1, w2 = (start1 + change1).contiguous(), (start2 + change2).contiguous()
        p1, p2 = pending1.clone(), pending2.clone()
        kept1, kept2 = (w.new_empty(batch, heads, kept_count if save else 0, *w.shape[2:]) for w in (w1, w2))
        none = w1.new_empty(0)
        _forward[(batch * heads,)](
            q, k, v, rate, w1, w2, p1, p2, none if gain is None else gain, none if bias is None else bias,
            place_B, length_B, y, kept1, kept2, *q.stride()[:3], time, heads, hidden, kept_count,
            NORM=gain is not None, SAVE=save, **sizes, **FUSED,
        )  # fmt: skip
        given = (q, k, v, rate, change1, change2, pending1, pending2, start1, start2, gain, bias)
        ctx.save_for_backward(*given, place_B, length_B, kept1, kept2)
        ctx.mini_batch, ctx.kept_count, ctx.ragged = mini_batch, kept_count, ragged
        return y, w1 - start1, w2 - start2, p1, p2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # somebody will differentiate this again: the other form can
            return second_gradient(ctx, gradients, matrices=2)
        q, k, v, rate, _, _, pending1, pending2, start1, _, gain, bias, *places = ctx.saved_tensors
        dy = gradients[0].contiguous()
        dafter1, dafter2 = gradients[1:3]
        # Where gradients come in, they leave: each mini-batch adds to what those after it want of the weights.
        dw1, dw2, dp1, dp2 = (part.clone(memory_format=torch.contiguous_format) for part in gradients[1:])
        batch, time, heads, head = q.shape
        hidden = start1.shape[-1]
        empty = unwritten(ctx.ragged)
        d_inputs = tuple(empty(part.shape, dtype=part.dtype, device=q.device) for part in (q, k, v, rate))
        dgain, dbias = (dy.new_empty(batch, heads, head) for _ in range(2))
        sizes = _sizes(q, hidden, ctx.mini_batch)
        between = sizes["KEEP"] if sizes["KEEP"] > 1 else 0
        between1, between2 = (dy.new_empty(batch, heads, between, head * hidden) for _ in range(2))
        none = dy.new_empty(0)
        place_B, length_B, kept1, kept2 = places
        backward_kernel[(batch * heads,)](
            q, k, v, rate, pending1, pending2, none if gain is None else gain, none if bias is None else bias,
            place_B, length_B, kept1, kept2, dy, between1, between2, *d_inputs,
            dw1, dw2, dp1, dp2, dgain, dbias, *q.stride()[:3], time, heads, hidden, ctx.kept_count,
            NORM=gain is not None, **sizes, **FUSED,
        )  # fmt: skip
        # The change is told from the start, which is thus taken away again from what is left in the end.
        starts = ((dw1 - dafter1).sum(0), (dw2 - dafter2).sum(0))
        norm = (None, None) if gain is None else (dgain.sum(0), dbias.sum(0))
        return (*d_inputs, dw1, dw2, dp1, dp2, *starts, *norm, None, None, None, None, None)


def ttt(*args: Any) -> tuple[Tensor, Carried]:
    """`dual.ttt` of an inner MLP. Queries, keys, values and rates in any precision; sums in float32."""
    return run_kernel(_Walk.apply, *args)

"""Test-time training of a linear inner model on a GPU: one program a row and head walks through all mini-batches.

The mathematics is that of `dual.py`. The weights stay in registers from the first mini-batch to the last. On the way
forward they are written down once every `_KEEP` mini-batches; on the way back those between are computed again from
there, one stretch at a time. Rows stand at their own places in their mini-batches: a token finds its slot by an
offset, and slots without a token have a rate and a key of 0.

The gradient, mini-batch by mini-batch from the last. Given dy and, of what the mini-batch leaves, dW' and dP', write
S = η e for the steps and U = kᵀ S for their sum. A full mini-batch leaves W - P - U and 0, so dU = dP = -dW'; one that
is not leaves W and P + U, so dU = dP = dP'. With z = q (W - P) - A S and A = tril(q kᵀ):

    dq = dy + dz (W - P)ᵀ + dA k        dA = tril(-dz Sᵀ)           dS = k dU - Aᵀ dz
    dk = dAᵀ q + S dUᵀ + de_k + dr Wᵀ   dη = Σ dS e                 dW = dW' + qᵀ dz + kᵀ dr        dP -= qᵀ dz

where dz is dy back through the norm, and (dr, de_k, dv) is η dS back through the inner gradient e.

B batch, T time, H heads, K width of a head, C slots of a mini-batch; KP and CP are K and C filled up to powers of two.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from statewise.kernels.time_axis import unwritten
from statewise.kernels.ttt.naive import Carried
from statewise.kernels.ttt.triton_autograd import run_kernel, second_gradient, tile_sizes
from statewise.kernels.ttt.triton_inner import (
    back_through_error,
    back_through_norm,
    error,
    learned_norm,
    normalised,
    row,
    stretch_before,
    tokens,
)
from statewise.kernels.with_triton import FUSED

_KEEP = 8  # mini-batches from one set of weights that is written down to the next


@triton.jit(do_not_specialize=["T", "H", "kept_count"])
def _forward(
    q_ptr, k_ptr, v_ptr, rate_ptr, start_ptr, change_ptr, pending_ptr, gain_ptr, bias_ptr, place_ptr, length_ptr,
    y_ptr, kept_ptr, after_ptr, left_over_ptr,
    in_row, in_time, in_head, T, H, kept_count,
    C: tl.constexpr, K: tl.constexpr, CP: tl.constexpr, KP: tl.constexpr, KEEP: tl.constexpr,
    NORM: tl.constexpr, SAVE: tl.constexpr, EPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    b, h = program // H, program % H
    c, x = tl.arange(0, CP), tl.arange(0, KP)
    inside = (x < K)[None, :]
    square = x[:, None] * K + x[None, :]
    whole = (x < K)[:, None] & inside
    start = tl.load(start_ptr + h * K * K + square, mask=whole, other=0.0)
    w = start + tl.load(change_ptr + program * K * K + square, mask=whole, other=0.0)
    p = tl.load(pending_ptr + program * K * K + square, mask=whole, other=0.0)
    gain, bias = learned_norm(gain_ptr, bias_ptr, h, x, K, KP, NORM)
    place, length, end, earlier = row(place_ptr, length_ptr, b, c)
    for n in range((end + C - 1) // C):
        if SAVE and n % KEEP == 0:
            tl.store(kept_ptr + (program * kept_count + n // KEEP) * K * K + square, w, mask=whole)
        _, at, at_in, _, here, rate = tokens(
            rate_ptr, b, h, n, place, length, in_row, in_time, in_head, T, H, c, x, inside, C, K
        )
        q = tl.load(q_ptr + at_in, mask=here, other=0.0).to(tl.float32)
        k = tl.load(k_ptr + at_in, mask=here, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at_in, mask=here, other=0.0).to(tl.float32)
        r = tl.dot(k, w, input_precision=PRECISION)
        s = rate[:, None] * error(k, v, r, gain, bias, inside, K, NORM, EPS)
        a = tl.where(earlier, tl.dot(q, tl.trans(k), input_precision=PRECISION), 0.0)
        z = tl.dot(q, w - p, input_precision=PRECISION) - tl.dot(a, s, input_precision=PRECISION)
        y = z
        if NORM:
            hat, _ = normalised(z, inside, K, EPS)
            y = q + hat * gain + bias
        tl.store(y_ptr + at, y, mask=here)
        total = p + tl.dot(tl.trans(k), s, input_precision=PRECISION)
        full = end >= (n + 1) * C
        w = tl.where(full, w - total, w)
        p = tl.where(full, 0.0, total)
    tl.store(after_ptr + program * K * K + square, w - start, mask=whole)
    tl.store(left_over_ptr + program * K * K + square, p, mask=whole)


@triton.jit(do_not_specialize=["T", "H", "kept_count"])
def _backward(
    q_ptr, k_ptr, v_ptr, rate_ptr, pending_ptr, gain_ptr, bias_ptr, place_ptr, length_ptr, kept_ptr,
    dy_ptr, dafter_ptr, dleft_ptr,
    between_ptr, dq_ptr, dk_ptr, dv_ptr, drate_ptr, dw_ptr, dp_ptr, dgain_ptr, dbias_ptr,
    in_row, in_time, in_head, T, H, kept_count,
    C: tl.constexpr, K: tl.constexpr, CP: tl.constexpr, KP: tl.constexpr, KEEP: tl.constexpr,
    NORM: tl.constexpr, EPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    b, h = program // H, program % H
    c, x = tl.arange(0, CP), tl.arange(0, KP)
    inside = (x < K)[None, :]
    square = x[:, None] * K + x[None, :]
    whole = (x < K)[:, None] & inside
    dw = tl.load(dafter_ptr + program * K * K + square, mask=whole, other=0.0)
    dp = tl.load(dleft_ptr + program * K * K + square, mask=whole, other=0.0)
    gain, bias = learned_norm(gain_ptr, bias_ptr, h, x, K, KP, NORM)
    dgain = tl.zeros([KP], tl.float32)
    dbias = tl.zeros([KP], tl.float32)
    place, length, end, earlier = row(place_ptr, length_ptr, b, c)
    for back in range((end + C * KEEP - 1) // (C * KEEP)):
        stretch, first, last = stretch_before(back, end, C, KEEP)
        # The weights that each mini-batch of this stretch began with, once more.
        w = tl.load(kept_ptr + (program * kept_count + stretch) * K * K + square, mask=whole, other=0.0)
        for n in range(first, last):
            tl.store(between_ptr + (program * KEEP + n - first) * K * K + square, w, mask=whole)
            rows, _, at_in, held, here, rate = tokens(
                rate_ptr, b, h, n, place, length, in_row, in_time, in_head, T, H, c, x, inside, C, K
            )
            k = tl.load(k_ptr + at_in, mask=here, other=0.0).to(tl.float32)
            v = tl.load(v_ptr + at_in, mask=here, other=0.0).to(tl.float32)
            r = tl.dot(k, w, input_precision=PRECISION)
            s = rate[:, None] * error(k, v, r, gain, bias, inside, K, NORM, EPS)
            begun = tl.load(pending_ptr + program * K * K + square, mask=whole & (n == 0), other=0.0)
            w -= begun + tl.dot(tl.trans(k), s, input_precision=PRECISION)
        tl.debug_barrier()  # other threads of this program read what these wrote
        for step in range(last - first):
            n = last - 1 - step
            w = tl.load(between_ptr + (program * KEEP + n - first) * K * K + square, mask=whole, other=0.0)
            p = tl.load(pending_ptr + program * K * K + square, mask=whole & (n == 0), other=0.0)
            rows, at, at_in, held, here, rate = tokens(
                rate_ptr, b, h, n, place, length, in_row, in_time, in_head, T, H, c, x, inside, C, K
            )
            q = tl.load(q_ptr + at_in, mask=here, other=0.0).to(tl.float32)
            k = tl.load(k_ptr + at_in, mask=here, other=0.0).to(tl.float32)
            v = tl.load(v_ptr + at_in, mask=here, other=0.0).to(tl.float32)
            dy = tl.load(dy_ptr + at, mask=here, other=0.0).to(tl.float32)
            r = tl.dot(k, w, input_precision=PRECISION)
            e = error(k, v, r, gain, bias, inside, K, NORM, EPS)
            s = rate[:, None] * e
            a = tl.where(earlier, tl.dot(q, tl.trans(k), input_precision=PRECISION), 0.0)
            now = w - p
            dz = dy
            dq = tl.zeros([CP, KP], tl.float32)
            if NORM:
                z = tl.dot(q, now, input_precision=PRECISION) - tl.dot(a, s, input_precision=PRECISION)
                dz, share = back_through_norm(z, dy, gain, inside, K, EPS)
                dgain += tl.sum(share, 0)
                dbias += tl.sum(dy, 0)
                dq = dy
            # What the mini-batch leaves to those after it.
            full = end >= (n + 1) * C
            du = tl.where(full, -dw, dp)
            dp = du
            # What is read from it.
            dnow = tl.dot(tl.trans(q), dz, input_precision=PRECISION)
            dw += dnow
            dp -= dnow
            da = tl.where(earlier, -tl.dot(dz, tl.trans(s), input_precision=PRECISION), 0.0)
            dq += tl.dot(dz, tl.trans(now), input_precision=PRECISION) + tl.dot(da, k, input_precision=PRECISION)
            tl.store(dq_ptr + at, dq, mask=here)
            ds = tl.dot(k, du, input_precision=PRECISION) - tl.dot(tl.trans(a), dz, input_precision=PRECISION)
            dk = tl.dot(tl.trans(da), q, input_precision=PRECISION)
            dk += tl.dot(s, tl.trans(du), input_precision=PRECISION)
            tl.store(drate_ptr + rows, tl.sum(ds * e, 1), mask=held)
            de = rate[:, None] * ds
            dr, dk_, dv, more_gain, more_bias = back_through_error(k, v, r, de, gain, bias, inside, K, NORM, EPS)
            dk += dk_
            dgain += tl.sum(more_gain, 0)
            dbias += tl.sum(more_bias, 0)
            dk += tl.dot(dr, tl.trans(w), input_precision=PRECISION)
            dw += tl.dot(tl.trans(k), dr, input_precision=PRECISION)
            tl.store(dk_ptr + at, dk, mask=here)
            tl.store(dv_ptr + at, dv, mask=here)
        tl.debug_barrier()  # before the next stretch writes where this one was read
    tl.store(dw_ptr + program * K * K + square, dw, mask=whole)
    tl.store(dp_ptr + program * K * K + square, dp, mask=whole)
    if NORM:
        tl.store(dgain_ptr + program * K + x, dgain, mask=x < K)
        tl.store(dbias_ptr + program * K + x, dbias, mask=x < K)


class _Walk(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        rate: Tensor,
        change: Tensor,
        pending: Tensor,
        start: Tensor,
        gain: Tensor | None,
        bias: Tensor | None,
        place_B: Tensor,
        length_B: Tensor,
        mini_batch: int,
        ragged: bool,
        save: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, time, heads, _ = q.shape
        kept_count = triton.cdiv(triton.cdiv(time + mini_batch, mini_batch), _KEEP)
        y = unwritten(ragged)(q.shape, dtype=torch.float32, device=q.device)
        kept = change.new_empty(batch, heads, kept_count if save else 0, *change.shape[2:])
        after, left_over = torch.empty_like(change), torch.empty_like(pending)
        none = change.new_empty(0)
        sizes = tile_sizes(q, mini_batch, keep=_KEEP, warps=4 if q.shape[-1] <= 32 else 8)
        _forward[(batch * heads,)](
            q, k, v, rate, start, change, pending, none if gain is None else gain, none if bias is None else bias,
            place_B, length_B, y, kept, after, left_over, *q.stride()[:3], time, heads, kept_count,
            NORM=gain is not None, SAVE=save, **sizes, **FUSED,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, rate, change, pending, start, gain, bias, place_B, length_B, kept)
        ctx.mini_batch, ctx.kept_count, ctx.ragged = mini_batch, kept_count, ragged
        return y, after, left_over

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # somebody will differentiate this again: the other form can
            return second_gradient(ctx, gradients, matrices=1)
        q, k, v, rate, _, pending, _, gain, bias, place_B, length_B, kept = ctx.saved_tensors
        dy, dafter, dleft = (gradient.contiguous() for gradient in gradients)
        batch, time, heads, head = q.shape
        empty = unwritten(ctx.ragged)
        d_inputs = tuple(empty(part.shape, dtype=part.dtype, device=q.device) for part in (q, k, v, rate))
        dw, dp = torch.empty_like(pending), torch.empty_like(pending)
        dgain, dbias = (pending.new_empty(batch, heads, head) for _ in range(2))
        between = pending.new_empty(batch, heads, _KEEP, head, head)
        none = pending.new_empty(0)
        sizes = tile_sizes(q, ctx.mini_batch, keep=_KEEP, warps=4 if q.shape[-1] <= 32 else 8)
        _backward[(batch * heads,)](
            q, k, v, rate, pending, none if gain is None else gain, none if bias is None else bias,
            place_B, length_B, kept, dy, dafter, dleft,
            between, *d_inputs, dw, dp, dgain, dbias, *q.stride()[:3], time, heads, ctx.kept_count,
            NORM=gain is not None, **sizes, **FUSED,
        )  # fmt: skip
        # The change is told from the start, which is thus taken away again from what is left in the end.
        dstart = (dw - dafter).sum(0)
        norm = (None, None) if gain is None else (dgain.sum(0), dbias.sum(0))
        return (*d_inputs, dw, dp, dstart, *norm, None, None, None, None, None)


def ttt(*args: Any) -> tuple[Tensor, Carried]:
    """`dual.ttt` of a linear inner model. Queries, keys, values and rates in any precision; sums in float32."""
    return run_kernel(_Walk.apply, *args)

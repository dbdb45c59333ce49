"""Linear attention with a decay on a GPU: one program a row and head walks through the chunks, its state in registers.

The mathematics is that of `chunked.py`. On the way forward what each chunk begins with is written down. On the way
back, with E = e^G, F = e^{G_C - G}, D = tril(e^{G_t - G_s}), A = D (q kᵀ) and dS' what is wanted of the state after:

    dv = Aᵀ dy + F (k dS')                dA = D (dy vᵀ)
    dq = dA k + E (dy Sᵀ)                 dk = dAᵀ q + F (v dS'ᵀ)
    dS = e^{G_C} dS' + (E q)ᵀ dy          dG_t = q_t · dq_t - k_t · dk_t,  and at the chunk's end  + Σ S' dS'

B batch, T time, H heads, K key width, V value width, C time steps of a chunk; KP and VP are filled up to powers of two.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from statewise.kernels.associative_memory import Inputs
from statewise.kernels.gradients import through
from statewise.kernels.linear_attention import chunked
from statewise.kernels.tiles import (
    Manner,
    decays,
    dense,
    own_state,
    own_steps,
    row_lengths,
    strides,
    tile,
    unwritten,
    walk_sizes,
)
from statewise.kernels.time_axis import wide
from statewise.kernels.with_triton import FUSED

_CHUNK = 32
_WIDEST, _NARROWEST = 64, 16  # values of a head in one program, where they can be shared out


@triton.jit(do_not_specialize=["T", "H", "N"])
def _forward(
    q_ptr, k_ptr, v_ptr, g_ptr, s_ptr, length_ptr, y_ptr, begin_ptr, after_ptr,
    q_row, q_time, q_head, k_row, k_time, k_head, v_row, v_time, v_head, T, H, N,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr,
    SAVE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    c, z = tl.arange(0, C), tl.arange(0, VP)
    program, b, h, x, square, whole = own_state(z, H, K, V, KP)
    s = tl.load(s_ptr + program * K * V + square, mask=whole, other=0.0)
    length = tl.load(length_ptr + b)
    for n in range((length + C - 1) // C):
        if SAVE:
            tl.store(begin_ptr + (program * N + n) * K * V + square, s, mask=whole)
        rows, held, here_k, here_v = own_steps(n * C + c, x, z, b, h, length, T, H, K, V)
        q = tile(q_ptr + b * q_row + h * q_head + n * C * q_time, q_time, c, x, here_k)
        k = tile(k_ptr + b * k_row + h * k_head + n * C * k_time, k_time, c, x, here_k)
        v = tile(v_ptr + b * v_row + h * v_head + n * C * v_time, v_time, c, z, here_v)
        g = tl.load(g_ptr + rows, mask=held, other=0.0).to(tl.float32)
        total, between = decays(g, c)
        end = tl.sum(g, 0)
        a = between * tl.dot(q, tl.trans(k), input_precision=PRECISION)
        y = tl.dot(a, v, input_precision=PRECISION)
        y += tl.exp(total)[:, None] * tl.dot(q, s, input_precision=PRECISION)
        tl.store(y_ptr + rows[:, None] * V + z[None, :], y, mask=here_v)
        late = k * tl.exp(end - total)[:, None]
        s = tl.exp(end) * s + tl.dot(tl.trans(late), v, input_precision=PRECISION)
    tl.store(after_ptr + program * K * V + square, s, mask=whole)


@triton.jit(do_not_specialize=["T", "H", "N"])
def _backward(
    q_ptr, k_ptr, v_ptr, g_ptr, length_ptr, begin_ptr, after_ptr, dy_ptr, dafter_ptr,
    dq_ptr, dk_ptr, dv_ptr, dg_ptr, ds_ptr,
    q_row, q_time, q_head, k_row, k_time, k_head, v_row, v_time, v_head, T, H, N,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    c, z = tl.arange(0, C), tl.arange(0, VP)
    program, b, h, x, square, whole = own_state(z, H, K, V, KP)
    ds = tl.load(dafter_ptr + program * K * V + square, mask=whole, other=0.0)
    after = tl.load(after_ptr + program * K * V + square, mask=whole, other=0.0)
    length = tl.load(length_ptr + b)
    count = (length + C - 1) // C
    for back in range(count):
        n = count - 1 - back
        s = tl.load(begin_ptr + (program * N + n) * K * V + square, mask=whole, other=0.0)
        rows, held, here_k, here_v = own_steps(n * C + c, x, z, b, h, length, T, H, K, V)
        at_k, at_v = rows[:, None] * K + x[None, :], rows[:, None] * V + z[None, :]
        q = tile(q_ptr + b * q_row + h * q_head + n * C * q_time, q_time, c, x, here_k)
        k = tile(k_ptr + b * k_row + h * k_head + n * C * k_time, k_time, c, x, here_k)
        v = tile(v_ptr + b * v_row + h * v_head + n * C * v_time, v_time, c, z, here_v)
        dy = tl.load(dy_ptr + at_v, mask=here_v, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + rows, mask=held, other=0.0).to(tl.float32)
        total, between = decays(g, c)
        end = tl.sum(g, 0)
        early, late = tl.exp(total)[:, None], tl.exp(end - total)[:, None]
        a = between * tl.dot(q, tl.trans(k), input_precision=PRECISION)
        da = between * tl.dot(dy, tl.trans(v), input_precision=PRECISION)
        dv = tl.dot(tl.trans(a), dy, input_precision=PRECISION)
        dv += late * tl.dot(k, ds, input_precision=PRECISION)
        dq = tl.dot(da, k, input_precision=PRECISION)
        dq += early * tl.dot(dy, tl.trans(s), input_precision=PRECISION)
        dk = tl.dot(tl.trans(da), q, input_precision=PRECISION)
        dk += late * tl.dot(v, tl.trans(ds), input_precision=PRECISION)
        tl.store(dq_ptr + at_k, dq, mask=here_k)
        tl.store(dk_ptr + at_k, dk, mask=here_k)
        tl.store(dv_ptr + at_v, dv, mask=here_v)
        # g_t is part of every G from t on, and all of them are part of the state that is left.
        d_total = tl.sum(q * dq - k * dk, 1)
        dg = tl.sum(d_total, 0) - tl.cumsum(d_total, 0) + d_total + tl.sum(after * ds)
        tl.store(dg_ptr + rows, dg, mask=held)
        ds = tl.exp(end) * ds + tl.dot(tl.trans(early * q), dy, input_precision=PRECISION)
        after = s
    tl.store(ds_ptr + program * K * V + square, ds, mask=whole)


class _Walk(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, g: Tensor, s: Tensor, length_B: Tensor, manner: Manner
    ) -> tuple[Tensor, Tensor]:
        batch, time, heads, _ = q.shape
        chunks = triton.cdiv(time, _CHUNK)
        y = unwritten(manner.ragged)(v.shape, dtype=torch.float32, device=q.device)
        begin = s.new_empty(batch, heads, chunks if manner.save else 0, *s.shape[2:])
        after = torch.empty_like(s)
        _forward[(batch * heads,)](
            q, k, v, g, s, length_B, y, begin, after, *strides(q, k, v), time, heads, chunks,
            SAVE=manner.save, **walk_sizes(q, v, chunk=_CHUNK, exact=manner.exact), **FUSED,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, g, s, length_B, begin, after)
        ctx.manner = manner
        return y, after

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, g, s, length_B, begin, after = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this again: the other form can
            inputs = (q, k, v, g, s)
            *along, begun = wide(*inputs)
            again = chunked.linear_attention(tuple(along), begun, length_B)
            return *through(again, inputs, gradients), None, None
        dy, dafter = (gradient.contiguous() for gradient in gradients)
        batch, time, heads, _ = q.shape
        empty = unwritten(ctx.manner.ragged)
        dq, dk, dv, dg = (empty(part.shape, dtype=part.dtype, device=q.device) for part in (q, k, v, g))
        ds = torch.empty_like(s)
        _backward[(batch * heads,)](
            q, k, v, g, length_B, begin, after, dy, dafter, dq, dk, dv, dg, ds,
            *strides(q, k, v), time, heads, triton.cdiv(time, _CHUNK),
            **walk_sizes(q, v, chunk=_CHUNK, exact=ctx.manner.exact), **FUSED,
        )  # fmt: skip
        return dq, dk, dv, dg, ds, None, None


def linear_attention(
    inputs: Inputs, s_BHKV: Tensor, lengths_B: Tensor | None, *, exact: bool = True
) -> tuple[Tensor, Tensor]:
    """`naive.linear_attention`; inputs in any precision, the state and all sums in float32, products if `exact`."""
    q_BTHK, k_BTHK, v_BTHV, g_BTH = inputs
    heads, pieces = q_BTHK.shape[2], _pieces(v_BTHV.shape[-1])
    if pieces > 1:  # columns of a state know nothing of each other: they may be heads of their own, with the same keys
        q_BTHK, k_BTHK, g_BTH = (
            part.unsqueeze(3).expand(-1, -1, -1, pieces, *part.shape[3:]).flatten(2, 3)
            for part in (q_BTHK, k_BTHK, g_BTH)
        )
        v_BTHV = v_BTHV.unflatten(-1, (pieces, -1)).flatten(2, 3)
        s_BHKV = s_BHKV.unflatten(-1, (pieces, -1)).movedim(-2, 2).flatten(1, 2)
    qkv = dense(q_BTHK, k_BTHK, v_BTHV)
    small = (part.contiguous() for part in (g_BTH, s_BHKV))
    given = (*qkv, *small)
    manner = Manner.of(given, lengths_B, exact=exact)
    y_BTHV, after_BHKV = _Walk.apply(*given, row_lengths(q_BTHK, lengths_B), manner)
    if pieces > 1:
        y_BTHV = y_BTHV.unflatten(2, (heads, pieces)).flatten(3)
        after_BHKV = after_BHKV.unflatten(1, (heads, pieces)).movedim(2, -2).flatten(-2)
    return y_BTHV, after_BHKV


def _pieces(width: int) -> int:
    """Equal parts that fit a program, as few as can be; 1 where there are none of a useful size."""
    if width <= _WIDEST:
        return 1
    fitting = (n for n in range(2, width // _NARROWEST + 1) if width % n == 0 and width // n <= _WIDEST)
    return next(fitting, 1)

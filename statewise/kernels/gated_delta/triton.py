"""The gated delta rule on a GPU: a program walks a row and head through the chunks, its state in registers.

The mathematics is that of `chunked.py`, with E = e^G, F = e^{G_C - G} and D = tril(e^{G_t - G_s}). What does not wait
for a state comes first, for all chunks side by side: M = (I + A)⁻¹ with A = tril⁻(β D (k kᵀ)), a column of A after
the other. (Powers of A would be fewer steps and no use: of equal keys they grow like binomials and then cancel.) Then

    X = v - E (k S)     U = M (β X)     y = D (q kᵀ) U + E (q S)     S' = e^{G_C} S + (F k)ᵀ U

Columns of v need each other nowhere, so a wide state is shared out to several programs. On the way back, where each of
them has its columns' part of dq, dk, dβ and dg, with P = D (q kᵀ) and dS' what is wanted of the state after:

    dU = Pᵀ dy + F (k dS')          dP = D (dy Uᵀ)              dR = Mᵀ dU        dv = dX = β dR
    dq = dP k + E (dy Sᵀ)           dN = -tril⁻(D (dR Uᵀ))      dβ_t = dR_t · X_t + k_t · (dN k)_t
    dk = read + written             read = β (dN k) - E (dX Sᵀ)       written = dPᵀ q + (β dN)ᵀ k + F (U dS'ᵀ)
    dS = e^{G_C} dS' + (E q)ᵀ dy - (E k)ᵀ dX
    dG_t = q_t · dq_t + k_t · read_t - k_t · written_t,  and at the chunk's end  + Σ S' dS'

B batch, T time, H heads, K key width, V value width, C time steps of a chunk; KP is K filled up to a power of two, VP
the columns of v that a program has.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from statewise.kernels.associative_memory import Inputs
from statewise.kernels.gated_delta import chunked
from statewise.kernels.gradients import through
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
_TILE = 4096  # numbers of a state that a program keeps in registers


@triton.jit(do_not_specialize=["T", "H", "N"])
def _inverse(
    k_ptr, beta_ptr, g_ptr, length_ptr, inverse_ptr, k_row, k_time, k_head, T, H, N,
    C: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """M of one chunk. Rows past the end have a β of 0 and are the identity's."""
    program = tl.program_id(0).to(tl.int64)
    b, h, n = program // N // H, program // N % H, program % N
    c, x = tl.arange(0, C), tl.arange(0, KP)
    t = n * C + c
    held = t < tl.load(length_ptr + b)
    here_k = held[:, None] & (x < K)[None, :]
    k = tile(k_ptr + b * k_row + h * k_head + n * C * k_time, k_time, c, x, here_k)
    beta = tl.load(beta_ptr + (b * T + t) * H + h, mask=held, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + (b * T + t) * H + h, mask=held, other=0.0).to(tl.float32)
    _, between = decays(g, c)
    a = beta[:, None] * between * tl.dot(k, tl.trans(k), input_precision=PRECISION)
    a = tl.where(c[:, None] > c[None, :], a, 0.0)
    m = tl.where(c[:, None] == c[None, :], 1.0, 0.0)
    for j in range(C - 1):
        column = tl.sum(tl.where(c[None, :] == j, a, 0.0), 1)
        row = tl.sum(tl.where(c[:, None] == j, m, 0.0), 0)
        m -= column[:, None] * row[None, :]
    tl.store(inverse_ptr + program * C * C + c[:, None] * C + c[None, :], m)


@triton.jit(do_not_specialize=["T", "H", "N"])
def _forward(
    q_ptr, k_ptr, v_ptr, beta_ptr, g_ptr, s_ptr, length_ptr, inverse_ptr, y_ptr, begin_ptr, after_ptr,
    q_row, q_time, q_head, k_row, k_time, k_head, v_row, v_time, v_head, T, H, N,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr,
    SAVE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    c, z = tl.arange(0, C), tl.program_id(1) * VP + tl.arange(0, VP)
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
        beta = tl.load(beta_ptr + rows, mask=held, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + rows, mask=held, other=0.0).to(tl.float32)
        m = tl.load(inverse_ptr + (program * N + n) * C * C + c[:, None] * C + c[None, :])
        total, between = decays(g, c)
        end = tl.sum(g, 0)
        early = tl.exp(total)[:, None]
        right = beta[:, None] * (v - early * tl.dot(k, s, input_precision=PRECISION))
        u = tl.dot(m, right, input_precision=PRECISION)
        p = between * tl.dot(q, tl.trans(k), input_precision=PRECISION)
        y = tl.dot(p, u, input_precision=PRECISION) + early * tl.dot(q, s, input_precision=PRECISION)
        tl.store(y_ptr + rows[:, None] * V + z[None, :], y, mask=here_v)
        late = k * tl.exp(end - total)[:, None]
        s = tl.exp(end) * s + tl.dot(tl.trans(late), u, input_precision=PRECISION)
    tl.store(after_ptr + program * K * V + square, s, mask=whole)


@triton.jit(do_not_specialize=["T", "H", "N", "part"])
def _backward(
    q_ptr, k_ptr, v_ptr, beta_ptr, g_ptr, length_ptr, inverse_ptr, begin_ptr, after_ptr, dy_ptr, dafter_ptr,
    dq_ptr, dk_ptr, dv_ptr, dbeta_ptr, dg_ptr, ds_ptr,
    q_row, q_time, q_head, k_row, k_time, k_head, v_row, v_time, v_head, T, H, N, part,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`part` is how many rows B T H one program of columns has to itself in dq, dk, dβ and dg."""
    c, z = tl.arange(0, C), tl.program_id(1) * VP + tl.arange(0, VP)
    program, b, h, x, square, whole = own_state(z, H, K, V, KP)
    before = tl.program_id(1).to(tl.int64) * part
    ds = tl.load(dafter_ptr + program * K * V + square, mask=whole, other=0.0)
    after = tl.load(after_ptr + program * K * V + square, mask=whole, other=0.0)
    length = tl.load(length_ptr + b)
    count = (length + C - 1) // C
    for back in range(count):
        n = count - 1 - back
        rows, held, here_k, here_v = own_steps(n * C + c, x, z, b, h, length, T, H, K, V)
        q = tile(q_ptr + b * q_row + h * q_head + n * C * q_time, q_time, c, x, here_k)
        k = tile(k_ptr + b * k_row + h * k_head + n * C * k_time, k_time, c, x, here_k)
        v = tile(v_ptr + b * v_row + h * v_head + n * C * v_time, v_time, c, z, here_v)
        dy = tl.load(dy_ptr + rows[:, None] * V + z[None, :], mask=here_v, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + rows, mask=held, other=0.0).to(tl.float32)[:, None]
        g = tl.load(g_ptr + rows, mask=held, other=0.0).to(tl.float32)
        m = tl.load(inverse_ptr + (program * N + n) * C * C + c[:, None] * C + c[None, :])
        s = tl.load(begin_ptr + (program * N + n) * K * V + square, mask=whole, other=0.0)
        total, between = decays(g, c)
        end = tl.sum(g, 0)
        early, late = tl.exp(total)[:, None], tl.exp(end - total)[:, None]
        error = v - early * tl.dot(k, s, input_precision=PRECISION)
        u = tl.dot(m, beta * error, input_precision=PRECISION)
        # What is read, and what is written into the state.
        p = between * tl.dot(q, tl.trans(k), input_precision=PRECISION)
        du = tl.dot(tl.trans(p), dy, input_precision=PRECISION) + late * tl.dot(k, ds, input_precision=PRECISION)
        dp = between * tl.dot(dy, tl.trans(u), input_precision=PRECISION)
        dq = tl.dot(dp, k, input_precision=PRECISION) + early * tl.dot(dy, tl.trans(s), input_precision=PRECISION)
        tl.store(dq_ptr + (before + rows)[:, None] * K + x[None, :], dq, mask=here_k)
        written = tl.dot(tl.trans(dp), q, input_precision=PRECISION)
        written += late * tl.dot(u, tl.trans(ds), input_precision=PRECISION)
        # The triangular system.
        dr = tl.dot(tl.trans(m), du, input_precision=PRECISION)
        dx = beta * dr
        tl.store(dv_ptr + rows[:, None] * V + z[None, :], dx, mask=here_v)
        dn = between * tl.dot(dr, tl.trans(u), input_precision=PRECISION)
        dn = tl.where(c[:, None] > c[None, :], -dn, 0.0)
        dn_k = tl.dot(dn, k, input_precision=PRECISION)
        dbeta = tl.sum(dr * error, 1) + tl.sum(k * dn_k, 1)
        tl.store(dbeta_ptr + before + rows, dbeta, mask=held)
        read = beta * dn_k - early * tl.dot(dx, tl.trans(s), input_precision=PRECISION)
        written += tl.dot(tl.trans(beta * dn), k, input_precision=PRECISION)
        tl.store(dk_ptr + (before + rows)[:, None] * K + x[None, :], read + written, mask=here_k)
        # g_t is part of every G from t on, and all of them are part of the state that is left.
        d_total = tl.sum(q * dq + k * (read - written), 1)
        dg = tl.sum(d_total, 0) - tl.cumsum(d_total, 0) + d_total + tl.sum(after * ds)
        tl.store(dg_ptr + before + rows, dg, mask=held)
        ds = tl.exp(end) * ds + tl.dot(tl.trans(early * q), dy, input_precision=PRECISION)
        ds -= tl.dot(tl.trans(early * k), dx, input_precision=PRECISION)
        after = s
    tl.store(ds_ptr + program * K * V + square, ds, mask=whole)


def _summed(parts: Tensor, like: Tensor) -> Tensor:
    """Over the programs that had columns of the same head."""
    return (parts[0] if len(parts) == 1 else parts.sum(0)).to(like.dtype)


class _Walk(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, s: Tensor, length_B: Tensor, manner: Manner
    ) -> tuple[Tensor, Tensor]:
        batch, time, heads, _ = q.shape
        sizes = walk_sizes(q, v, chunk=_CHUNK, exact=manner.exact, tile=_TILE)
        chunks = triton.cdiv(time, _CHUNK)
        y = unwritten(manner.ragged)(v.shape, dtype=torch.float32, device=q.device)
        inverse = s.new_empty(batch, heads, chunks, _CHUNK, _CHUNK)
        begin = s.new_empty(batch, heads, chunks if manner.save else 0, *s.shape[2:])
        after = torch.empty_like(s)
        alone = {key: sizes[key] for key in ("C", "K", "KP", "PRECISION", "num_stages")}
        _inverse[(batch * heads * chunks,)](
            k, beta, g, length_B, inverse, *strides(k), time, heads, chunks, num_warps=1, **alone, **FUSED
        )
        _forward[(batch * heads, triton.cdiv(v.shape[-1], sizes["VP"]))](
            q, k, v, beta, g, s, length_B, inverse, y, begin, after, *strides(q, k, v), time, heads, chunks,
            SAVE=manner.save, **sizes, **FUSED,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, beta, g, s, length_B, inverse, begin, after)
        ctx.manner = manner
        return y, after

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, beta, g, s, length_B, inverse, begin, after = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this again: the other form can
            inputs = (q, k, v, beta, g, s)
            *along, begun = wide(*inputs)
            again = chunked.gated_delta(tuple(along), begun, length_B)
            return *through(again, inputs, gradients), None, None
        dy, dafter = (gradient.contiguous() for gradient in gradients)
        batch, time, heads, _ = q.shape
        sizes = walk_sizes(q, v, chunk=_CHUNK, exact=ctx.manner.exact, tile=_TILE)
        empty, shares = unwritten(ctx.manner.ragged), triton.cdiv(v.shape[-1], sizes["VP"])
        dq, dk, dbeta, dg = (
            empty(shares, *part.shape, dtype=part.dtype if shares == 1 else torch.float32, device=q.device)
            for part in (q, k, beta, g)
        )
        dv = empty(v.shape, dtype=v.dtype, device=q.device)
        ds = torch.empty_like(s)
        _backward[(batch * heads, shares)](
            q, k, v, beta, g, length_B, inverse, begin, after, dy, dafter, dq, dk, dv, dbeta, dg, ds,
            *strides(q, k, v), time, heads, triton.cdiv(time, _CHUNK), batch * time * heads, **sizes, **FUSED,
        )  # fmt: skip
        return _summed(dq, q), _summed(dk, k), dv, _summed(dbeta, beta), _summed(dg, g), ds, None, None


def gated_delta(
    inputs: Inputs, s_BHKV: Tensor, lengths_B: Tensor | None, *, exact: bool = True
) -> tuple[Tensor, Tensor]:
    """`naive.gated_delta`; inputs in any precision, the state and all sums in float32, products if `exact`."""
    given = (*dense(*inputs[:3]), *(part.contiguous() for part in (*inputs[3:], s_BHKV)))
    manner = Manner.of(given, lengths_B, exact=exact)
    y_BTHV, after_BHKV = _Walk.apply(*given, row_lengths(inputs[0], lengths_B), manner)
    return y_BTHV, after_BHKV

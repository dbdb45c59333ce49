"""The way back through `triton_mlp.py`: stretch by stretch from the last, the weights between computed again.

With a = k W₁, h = gelu(a), r = h W₂, e₂ the error at r, b = e₂ W₂ᵀ, e₁ = b gelu'(a), S = η e,
 z₁ = q (W₁ - P₁) - A₁ S₁, x = gelu(z₁), z₂ = x (W₂ - P₂) - A₂ S₂, A₁ = tril(q kᵀ), A₂ = tril(x hᵀ), the way
back is

    dA₂ = tril(-dz₂ S₂ᵀ)    dx = dz₂ (W₂ - P₂)ᵀ + dA₂ h    dz₁ = dx gelu'(z₁)    dA₁ = tril(-dz₁ S₁ᵀ)
    dS₁ = k dU₁ - A₁ᵀ dz₁   dS₂ = h dU₂ - A₂ᵀ dz₂          db = η dS₁ gelu'(a)   de₂ = η dS₂ + db W₂
    dh = dA₂ᵀ x + S₂ dU₂ᵀ + dr W₂ᵀ                         da = η dS₁ b gelu''(a) + dh gelu'(a)
    dW₁ = dW₁' + qᵀ dz₁ + kᵀ da                            dW₂ = dW₂' + xᵀ dz₂ + dbᵀ e₂ + hᵀ dr
    dq = dz₁ (W₁ - P₁)ᵀ + dA₁ k (+ dy)                     dk = dA₁ᵀ q + S₁ dU₁ᵀ + da W₁ᵀ (+ of e₂)

where (dr, and more of dk, dv) is de₂ back through the error, and the dU are as in `triton.py`.
"""

import triton
import triton.language as tl

from statewise.kernels.ttt.triton_inner import (
    back_through_error,
    back_through_norm,
    dot,
    error,
    gelu,
    gelu_curve,
    gelu_slope,
    learned_norm,
    output,
    row,
    stretch_before,
    tile,
    tokens,
)


@triton.jit(do_not_specialize=["T", "H", "kept_count"])
def backward_kernel(
    q_ptr, k_ptr, v_ptr, rate_ptr, p1_ptr, p2_ptr, gain_ptr, bias_ptr, place_ptr, length_ptr, kept1_ptr, kept2_ptr,
    dy_ptr, between1_ptr, between2_ptr, dq_ptr, dk_ptr, dv_ptr, drate_ptr,
    dw1_ptr, dw2_ptr, dp1_ptr, dp2_ptr, dgain_ptr, dbias_ptr,
    in_row, in_time, in_head, T, H, M, kept_count,
    C: tl.constexpr, K: tl.constexpr, CP: tl.constexpr, KP: tl.constexpr, MB: tl.constexpr, KEEP: tl.constexpr,
    NORM: tl.constexpr, EPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    b, h = program // H, program % H
    c, x = tl.arange(0, CP), tl.arange(0, KP)
    inside = (x < K)[None, :]
    matrix = program * K * M
    gain, bias = learned_norm(gain_ptr, bias_ptr, h, x, K, KP, NORM)
    dgain = tl.zeros([KP], tl.float32)
    dbias = tl.zeros([KP], tl.float32)
    place, length, end, earlier = row(place_ptr, length_ptr, b, c)
    for back in range((end + C * KEEP - 1) // (C * KEEP)):
        stretch, first, last = stretch_before(back, end, C, KEEP)
        if KEEP > 1:  # the weights that each mini-batch of this stretch began with, once more
            for n in range(first, last):
                w1_ptr = between1_ptr + (program * KEEP + n - first) * K * M
                w2_ptr = between2_ptr + (program * KEEP + n - first) * K * M
                if n == first:
                    for begin in range(0, M, MB):
                        down, up, at1, at2 = tile(begin, x, M, K, MB)
                        base = (program * kept_count + stretch) * K * M
                        tl.store(w1_ptr + at1, tl.load(kept1_ptr + base + at1, mask=down, other=0.0), mask=down)
                        tl.store(w2_ptr + at2, tl.load(kept2_ptr + base + at2, mask=up, other=0.0), mask=up)
                    tl.debug_barrier()
                if n + 1 < last:
                    rows, _, at_in, held, here, rate = tokens(
                        rate_ptr, b, h, n, place, length, in_row, in_time, in_head, T, H, c, x, inside, C, K
                    )
                    k = tl.load(k_ptr + at_in, mask=here, other=0.0).to(tl.float32)
                    v = tl.load(v_ptr + at_in, mask=here, other=0.0).to(tl.float32)
                    rate = rate[:, None]
                    r = output(k, w1_ptr, w2_ptr, x, M, K, KP, CP, MB, PRECISION)
                    e2 = error(k, v, r, gain, bias, inside, K, NORM, EPS)
                    for begin in range(0, M, MB):
                        down, up, at1, at2 = tile(begin, x, M, K, MB)
                        w1 = tl.load(w1_ptr + at1, mask=down, other=0.0)
                        w2 = tl.load(w2_ptr + at2, mask=up, other=0.0)
                        a = dot(k, w1, PRECISION)
                        s1 = rate * dot(e2, tl.trans(w2), PRECISION) * gelu_slope(a)
                        w1 -= tl.load(p1_ptr + matrix + at1, mask=down & (n == 0), other=0.0)
                        w2 -= tl.load(p2_ptr + matrix + at2, mask=up & (n == 0), other=0.0)
                        w1 -= dot(tl.trans(k), s1, PRECISION)
                        w2 -= dot(tl.trans(gelu(a)), rate * e2, PRECISION)
                        tl.store(w1_ptr + K * M + at1, w1, mask=down)
                        tl.store(w2_ptr + K * M + at2, w2, mask=up)
                    tl.debug_barrier()
        for step in range(last - first):
            n = last - 1 - step
            if KEEP > 1:
                w1_ptr = between1_ptr + (program * KEEP + n - first) * K * M
                w2_ptr = between2_ptr + (program * KEEP + n - first) * K * M
            else:
                w1_ptr = kept1_ptr + (program * kept_count + n) * K * M
                w2_ptr = kept2_ptr + (program * kept_count + n) * K * M
            rows, at, at_in, held, here, rate = tokens(
                rate_ptr, b, h, n, place, length, in_row, in_time, in_head, T, H, c, x, inside, C, K
            )
            q = tl.load(q_ptr + at_in, mask=here, other=0.0).to(tl.float32)
            k = tl.load(k_ptr + at_in, mask=here, other=0.0).to(tl.float32)
            v = tl.load(v_ptr + at_in, mask=here, other=0.0).to(tl.float32)
            dy = tl.load(dy_ptr + at, mask=here, other=0.0).to(tl.float32)
            rate = rate[:, None]
            full = end >= (n + 1) * C
            r = output(k, w1_ptr, w2_ptr, x, M, K, KP, CP, MB, PRECISION)
            e2 = error(k, v, r, gain, bias, inside, K, NORM, EPS)
            s2 = rate * e2
            a1 = tl.where(earlier, dot(q, tl.trans(k), PRECISION), 0.0)
            z2 = tl.zeros([CP, KP], tl.float32)
            a2 = tl.zeros([CP, CP], tl.float32)
            for begin in range(0, M, MB):
                down, up, at1, at2 = tile(begin, x, M, K, MB)
                w1 = tl.load(w1_ptr + at1, mask=down, other=0.0)
                w2 = tl.load(w2_ptr + at2, mask=up, other=0.0)
                p1 = tl.load(p1_ptr + matrix + at1, mask=down & (n == 0), other=0.0)
                p2 = tl.load(p2_ptr + matrix + at2, mask=up & (n == 0), other=0.0)
                a = dot(k, w1, PRECISION)
                s1 = rate * dot(e2, tl.trans(w2), PRECISION) * gelu_slope(a)
                seen = gelu(dot(q, w1 - p1, PRECISION) - dot(a1, s1, PRECISION))
                z2 += dot(seen, w2 - p2, PRECISION)
                a2 += dot(seen, tl.trans(gelu(a)), PRECISION)
            a2 = tl.where(earlier, a2, 0.0)
            dz2 = dy
            dq = tl.zeros([CP, KP], tl.float32)
            if NORM:
                z2 -= dot(a2, s2, PRECISION)
                dz2, share = back_through_norm(z2, dy, gain, inside, K, EPS)
                dgain += tl.sum(share, 0)
                dbias += tl.sum(dy, 0)
                dq = dy
            da2 = tl.where(earlier, -dot(dz2, tl.trans(s2), PRECISION), 0.0)
            ds2 = -dot(tl.trans(a2), dz2, PRECISION)
            da1 = tl.zeros([CP, CP], tl.float32)
            de2 = tl.zeros([CP, KP], tl.float32)
            drate = tl.zeros([CP], tl.float32)
            for begin in range(0, M, MB):
                down, up, at1, at2 = tile(begin, x, M, K, MB)
                w1 = tl.load(w1_ptr + at1, mask=down, other=0.0)
                w2 = tl.load(w2_ptr + at2, mask=up, other=0.0)
                now1 = w1 - tl.load(p1_ptr + matrix + at1, mask=down & (n == 0), other=0.0)
                now2 = w2 - tl.load(p2_ptr + matrix + at2, mask=up & (n == 0), other=0.0)
                du1 = tl.load(dp1_ptr + matrix + at1, mask=down & (end < (n + 1) * C), other=0.0)
                du1 -= tl.load(dw1_ptr + matrix + at1, mask=down & full, other=0.0)
                du2 = tl.load(dp2_ptr + matrix + at2, mask=up & (end < (n + 1) * C), other=0.0)
                du2 -= tl.load(dw2_ptr + matrix + at2, mask=up & full, other=0.0)
                a = dot(k, w1, PRECISION)
                hidden, slope = gelu(a), gelu_slope(a)
                e1 = dot(e2, tl.trans(w2), PRECISION) * slope
                s1 = rate * e1
                z1 = dot(q, now1, PRECISION) - dot(a1, s1, PRECISION)
                dz1 = dot(dz2, tl.trans(now2), PRECISION) + dot(da2, hidden, PRECISION)
                dz1 *= gelu_slope(z1)
                dq += dot(dz1, tl.trans(now1), PRECISION)
                da1 -= dot(dz1, tl.trans(s1), PRECISION)
                ds1 = dot(k, du1, PRECISION) - dot(tl.trans(a1), dz1, PRECISION)
                ds2 += dot(hidden, du2, PRECISION)
                drate += tl.sum(ds1 * e1, 1)
                de2 += dot(rate * ds1 * slope, w2, PRECISION)
            da1 = tl.where(earlier, da1, 0.0)
            dq += dot(da1, k, PRECISION)
            dk = dot(tl.trans(da1), q, PRECISION)
            drate += tl.sum(ds2 * e2, 1)
            de2 += rate * ds2
            dr, dk_, dv, more_gain, more_bias = back_through_error(k, v, r, de2, gain, bias, inside, K, NORM, EPS)
            dk += dk_
            dgain += tl.sum(more_gain, 0)
            dbias += tl.sum(more_bias, 0)
            for begin in range(0, M, MB):
                down, up, at1, at2 = tile(begin, x, M, K, MB)
                w1 = tl.load(w1_ptr + at1, mask=down, other=0.0)
                w2 = tl.load(w2_ptr + at2, mask=up, other=0.0)
                now1 = w1 - tl.load(p1_ptr + matrix + at1, mask=down & (n == 0), other=0.0)
                now2 = w2 - tl.load(p2_ptr + matrix + at2, mask=up & (n == 0), other=0.0)
                dw1 = tl.load(dw1_ptr + matrix + at1, mask=down, other=0.0)
                dw2 = tl.load(dw2_ptr + matrix + at2, mask=up, other=0.0)
                du1 = tl.where(full, -dw1, tl.load(dp1_ptr + matrix + at1, mask=down, other=0.0))
                du2 = tl.where(full, -dw2, tl.load(dp2_ptr + matrix + at2, mask=up, other=0.0))
                a = dot(k, w1, PRECISION)
                hidden, slope = gelu(a), gelu_slope(a)
                b1 = dot(e2, tl.trans(w2), PRECISION)
                s1 = rate * b1 * slope
                z1 = dot(q, now1, PRECISION) - dot(a1, s1, PRECISION)
                seen = gelu(z1)
                dz1 = dot(dz2, tl.trans(now2), PRECISION) + dot(da2, hidden, PRECISION)
                dz1 *= gelu_slope(z1)
                de1 = rate * (dot(k, du1, PRECISION) - dot(tl.trans(a1), dz1, PRECISION))
                dh = dot(tl.trans(da2), seen, PRECISION) + dot(s2, tl.trans(du2), PRECISION)
                dh += dot(dr, tl.trans(w2), PRECISION)
                da = de1 * b1 * gelu_curve(a) + dh * slope
                dk += dot(da, tl.trans(w1), PRECISION) + dot(s1, tl.trans(du1), PRECISION)
                read1 = dot(tl.trans(q), dz1, PRECISION)
                read2 = dot(tl.trans(seen), dz2, PRECISION)
                dw1 += read1 + dot(tl.trans(k), da, PRECISION)
                dw2 += read2 + dot(tl.trans(de1 * slope), e2, PRECISION) + dot(tl.trans(hidden), dr, PRECISION)
                tl.store(dw1_ptr + matrix + at1, dw1, mask=down)
                tl.store(dw2_ptr + matrix + at2, dw2, mask=up)
                tl.store(dp1_ptr + matrix + at1, du1 - read1, mask=down & (n == 0))
                tl.store(dp2_ptr + matrix + at2, du2 - read2, mask=up & (n == 0))
            tl.store(dq_ptr + at, dq, mask=here)
            tl.store(dk_ptr + at, dk, mask=here)
            tl.store(dv_ptr + at, dv, mask=here)
            tl.store(drate_ptr + rows, drate, mask=held)
            tl.debug_barrier()  # the mini-batch before reads gradients that other threads wrote
    if NORM:
        tl.store(dgain_ptr + program * K + x, dgain, mask=x < K)
        tl.store(dbias_ptr + program * K + x, dbias, mask=x < K)

"""The inner loss of test-time training as Triton functions: what `inner.py` says, on tiles, and its way back.

Tiles are [slots of a mini-batch, width of a head], filled up to powers of two; `inside_K` says which columns count.
"""

import triton
import triton.language as tl


@triton.jit
def mean(x, K: tl.constexpr):
    return tl.sum(x, 1)[:, None] / K


@triton.jit
def normalised(r, inside_K, K: tl.constexpr, EPS: tl.constexpr):
    centred = tl.where(inside_K, r - mean(r, K), 0.0)
    inverse = 1.0 / tl.sqrt(mean(centred * centred, K) + EPS)
    return centred * inverse, inverse


@triton.jit
def error(k, v, r, gain, bias, inside_K, K: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr):
    """The gradient of the inner loss by r."""
    if not NORM:
        return r - v
    hat, inverse = normalised(r, inside_K, K, EPS)
    g = (k + hat * gain + bias - v) * gain
    return inverse * (g - tl.where(inside_K, mean(g, K), 0.0) - hat * mean(g * hat, K))


@triton.jit
def back_through_error(k, v, r, de, gain, bias, inside_K, K: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr):
    """From the gradient by that error those by r, k and v, and each token's share in those by gain and bias."""
    if not NORM:
        return de, tl.zeros_like(de), -de, tl.zeros_like(de), tl.zeros_like(de)
    hat, inverse = normalised(r, inside_K, K, EPS)
    off = k + hat * gain + bias - v
    g = off * gain
    along = mean(g * hat, K)
    u = g - tl.where(inside_K, mean(g, K), 0.0) - hat * along  # the error is inverse · u
    d_inverse = tl.sum(de * u, 1)[:, None]
    du = inverse * de
    slope = mean(du * hat, K)
    dg = du - tl.where(inside_K, mean(du, K), 0.0) - hat * slope
    d_off = dg * gain
    dhat = d_off * gain - du * along - g * slope
    dr = inverse * (dhat - tl.where(inside_K, mean(dhat, K), 0.0) - hat * mean(dhat * hat, K))
    return dr - hat * inverse * inverse * d_inverse / K, d_off, -d_off, dg * off + d_off * hat, d_off


@triton.jit
def back_through_norm(z, dy, gain, inside_K, K: tl.constexpr, EPS: tl.constexpr):
    """From the gradient by `norm(z) · gain` that by z, and each token's share in that by gain."""
    hat, inverse = normalised(z, inside_K, K, EPS)
    d = dy * gain
    return inverse * (d - tl.where(inside_K, mean(d, K), 0.0) - hat * mean(d * hat, K)), dy * hat


@triton.jit
def row(place_ptr, length_ptr, b, c):
    """Row b: the slot that it begins in, its length, the slot of its end; and which slots are no later than which."""
    place, length = tl.load(place_ptr + b), tl.load(length_ptr + b)
    return place, length, place + length, c[:, None] >= c[None, :]


@triton.jit
def stretch_before(back, end, C: tl.constexpr, KEEP: tl.constexpr):
    """The stretch of mini-batches that is `back` before the last: its number, its first one and its end."""
    count = (end + C - 1) // C
    stretch = (count + KEEP - 1) // KEEP - 1 - back
    return stretch, stretch * KEEP, tl.minimum((stretch + 1) * KEEP, count)


@triton.jit
def slots(base, n, place, length, T, row_stride, c, C: tl.constexpr):
    """Which token each slot of mini-batch n holds, and whether it holds one."""
    t = n * C + c - place
    held = (c < C) & (t >= 0) & (t < length)
    return base + t * row_stride, held


@triton.jit
def tokens(
    rate_ptr, b, h, n, place, length, in_row, in_time, in_head, T, H, c, x, inside_K, C: tl.constexpr, K: tl.constexpr
):
    """Mini-batch n of row b and head h. Of each slot: its token's number among all; where that is written and read;
    whether there is one, also for each of its numbers; and its rate.
    """
    rows, held = slots(b * T * H + h, n, place, length, T, H, c, C)
    starts, _ = slots(b * in_row + h * in_head, n, place, length, T, in_time, c, C)
    at, at_in = rows[:, None] * K + x[None, :], starts[:, None] + x[None, :]
    rate = tl.load(rate_ptr + rows, mask=held, other=0.0).to(tl.float32)
    return rows, at, at_in, held, held[:, None] & inside_K, rate


@triton.jit
def learned_norm(gain_ptr, bias_ptr, h, x, K: tl.constexpr, KP: tl.constexpr, NORM: tl.constexpr):
    """Gain and bias of head h, for every slot the same; zeros where there is no norm."""
    gain = tl.zeros([1, KP], tl.float32)
    bias = tl.zeros([1, KP], tl.float32)
    if NORM:
        gain = tl.load(gain_ptr + h * K + x, mask=x < K, other=0.0)[None, :]
        bias = tl.load(bias_ptr + h * K + x, mask=x < K, other=0.0)[None, :]
    return gain, bias


@triton.jit
def gelu(a):
    return 0.5 * a * (1.0 + tl.erf(a * 0.7071067811865476))


@triton.jit
def gelu_slope(a):
    return 0.5 * (1.0 + tl.erf(a * 0.7071067811865476)) + a * tl.exp(-0.5 * a * a) * 0.3989422804014327


@triton.jit
def gelu_curve(a):
    """The slope of the slope."""
    return tl.exp(-0.5 * a * a) * 0.3989422804014327 * (2.0 - a * a)


@triton.jit
def dot(x, y, PRECISION: tl.constexpr):
    return tl.dot(x, y, input_precision=PRECISION)


@triton.jit
def tile(begin, x, M, K: tl.constexpr, MB: tl.constexpr):
    """Hidden units from `begin` on: which entries of W₁ and W₂ exist, and where they are."""
    m = begin + tl.arange(0, MB)
    down = (x < K)[:, None] & (m < M)[None, :]
    up = (m < M)[:, None] & (x < K)[None, :]
    return down, up, x[:, None] * M + m[None, :], m[:, None] * K + x[None, :]


@triton.jit
def output(
    k, w1_ptr, w2_ptr, x, M,
    K: tl.constexpr, KP: tl.constexpr, CP: tl.constexpr, MB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """r = gelu(k W₁) W₂."""
    r = tl.zeros([CP, KP], tl.float32)
    for begin in range(0, M, MB):
        down, up, at1, at2 = tile(begin, x, M, K, MB)
        w1 = tl.load(w1_ptr + at1, mask=down, other=0.0)
        w2 = tl.load(w2_ptr + at2, mask=up, other=0.0)
        r += dot(gelu(dot(k, w1, PRECISION)), w2, PRECISION)
    return r

"""The gated delta rule on a GPU: a triangular system for every chunk, then `chunk_kernels.py`.

The mathematics is that of `chunked.py`. With E = e^G and D = tril(e^{G_t - G_s}), A = tril⁻(β D (k kᵀ)), and
M = (I + A)⁻¹, what does not wait for a state is formed for all chunks side by side:

    U₀ = M (β v)        W = M (β E k)

M by blocks. Those of 16 on the diagonal are inverted column by column, all of them at once. Two neighbours X₁, X₂ and
what lies below them then join to a block twice as large, (I + A)⁻¹ = X - X A₂₁ X. (Powers of A would be fewer steps
and no use: of equal keys they grow like binomials and then cancel.)

On the way back, where dU comes from `chunk_kernels.py` and X = v - E (k S), so that U = M (β X),

    dR = Mᵀ dU      dv = dX = β dR        dN = -tril⁻(D (dR Uᵀ))         dβ_t = dR_t · X_t + k_t · (dN k)_t
    read = β (dN k) - E (dX Sᵀ)           written = (β dN)ᵀ k
    dk += read + written                  dG_t += k_t · (read_t - written_t)

B batch, T time, H heads, K key width, V value width, N chunks, C time steps of a chunk; KP is K filled up to a power of
two, VP the columns of v that a program has at a time.
"""

import triton
import triton.language as tl
from torch import Tensor

from statewise.kernels.associative_memory import Inputs
from statewise.kernels.chunk_autograd import Call, Prepared, System, remember
from statewise.kernels.chunk_kernels import between, decay, from_totals, own_chunk, product, put, tile
from statewise.kernels.gated_delta import chunked


@triton.jit
def _joined(x, a, c, SIDE: tl.constexpr, PRECISION: tl.constexpr):
    """Inverses of blocks twice as large as SIDE, of those that x has."""
    pair = c[:, None] // (2 * SIDE) == c[None, :] // (2 * SIDE)
    below = pair & (c[:, None] // SIDE > c[None, :] // SIDE)
    lower = tl.dot(tl.where(below, a, 0.0), x, input_precision=PRECISION)
    return x - tl.dot(x, lower, input_precision=PRECISION)


@triton.jit
def _inverse(a, c, C: tl.constexpr, PRECISION: tl.constexpr):
    """(I + a)⁻¹ of a strictly lower triangular a."""
    blocks: tl.constexpr = C // 16
    own = tl.arange(0, blocks)[:, None, None, None] == tl.arange(0, blocks)[None, None, :, None]
    i = tl.arange(0, 16)
    diagonal = tl.sum(tl.where(own, tl.reshape(a, [blocks, 16, blocks, 16]), 0.0), 2)
    x = tl.where(i[None, :, None] == i[None, None, :], 1.0, 0.0) + tl.zeros([blocks, 16, 16], tl.float32)
    for j in range(15):
        column = tl.sum(tl.where(i[None, None, :] == j, diagonal, 0.0), 2)
        row = tl.sum(tl.where(i[None, :, None] == j, x, 0.0), 1)
        x -= column[:, :, None] * row[:, None, :]
    full = tl.reshape(tl.where(own, x[:, :, None, :], 0.0), [C, C])
    if C > 16:
        full = _joined(full, a, c, 16, PRECISION)
    if C > 32:
        full = _joined(full, a, c, 32, PRECISION)
    return full


@triton.jit(do_not_specialize=["T", "H", "N"])
def _prepare(
    k_ptr, v_ptr, beta_ptr, g_ptr, length_ptr, m_ptr, w_ptr, u_ptr,
    k_row, k_time, k_head, v_row, v_time, v_head, T, H, N,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr,
    RAGGED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Time steps past the end have a β of 0: there M is the identity, and W and U₀ are 0."""
    kind: tl.constexpr = m_ptr.dtype.element_ty
    head, b, h, n, left = own_chunk(length_ptr, T, H, N, C, RAGGED)
    if left > 0:
        c, x = tl.arange(0, C), tl.arange(0, KP)
        here_k = (c < left)[:, None] & (x < K)[None, :]
        k = tile(k_ptr + b * k_row + h * k_head + n * C * k_time, k_time, c, x, here_k)
        first = (b * T + n * C) * H + h
        beta = tl.load(beta_ptr + first + c * H, mask=c < left, other=0.0).to(tl.float32)[:, None]
        total, _ = decay(g_ptr, first, c, H, c < left)
        a = beta * between(total, c) * product(k, tl.trans(k), kind, PRECISION)
        m = _inverse(tl.where(c[:, None] > c[None, :], a, 0.0), c, C, PRECISION).to(kind)
        every = (c < C)[:, None]
        put(m_ptr + (head * N + n) * C * C, C, c, c, m, every & (c < C)[None, :])
        w = product(m, beta * tl.exp(total)[:, None] * k, kind, PRECISION)
        put(w_ptr + (head * N + n) * C * K, K, c, x, w, every & (x < K)[None, :])
        for start in range(0, V, VP):
            z = start + tl.arange(0, VP)
            here_v = (c < left)[:, None] & (z < V)[None, :]
            v = tile(v_ptr + b * v_row + h * v_head + n * C * v_time, v_time, c, z, here_v)
            u = product(m, beta * v, kind, PRECISION)
            put(u_ptr + (head * N + n) * C * V, V, c, z, u, every & (z < V)[None, :])


@triton.jit(do_not_specialize=["T", "H", "N"])
def _through_written(
    k_ptr, v_ptr, u_ptr, beta_ptr, g_ptr, length_ptr, m_ptr, begin_ptr, du_ptr,
    dk_ptr, dv_ptr, dbeta_ptr, dg_ptr,
    k_row, k_time, k_head, v_row, v_time, v_head, u_row, u_time, u_head, T, H, N,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr,
    RAGGED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds to dk and dg. Keys in parts of 64: registers hold no more."""
    kind: tl.constexpr = m_ptr.dtype.element_ty
    head, b, h, n, left = own_chunk(length_ptr, T, H, N, C, RAGGED)
    if left > 0:
        c, held = tl.arange(0, C), tl.arange(0, C) < left
        first = (b * T + n * C) * H + h
        k_ptr += b * k_row + h * k_head + n * C * k_time
        v_ptr += b * v_row + h * v_head + n * C * v_time
        u_ptr += b * u_row + h * u_head + n * C * u_time
        du_ptr += (head * N + n) * C * V
        begin_ptr += (head * N + n) * K * V
        total, _ = decay(g_ptr, first, c, H, held)
        early = tl.exp(total)[:, None]
        beta = tl.load(beta_ptr + first + c * H, mask=held, other=0.0).to(tl.float32)
        m = tile(m_ptr + (head * N + n) * C * C, C, c, c, (c < C)[:, None] & (c < C)[None, :])
        keys: tl.constexpr = min(KP, 64)
        dn = tl.zeros([C, C], tl.float32)
        dbeta = tl.zeros([C], tl.float32)
        for start in tl.static_range(0, V, VP):
            z = start + tl.arange(0, VP)
            here_v = held[:, None] & (z < V)[None, :]
            recalled = tl.zeros([C, VP], tl.float32)
            for at in tl.static_range(0, KP, keys):
                x = at + tl.arange(0, keys)
                k = tile(k_ptr, k_time, c, x, held[:, None] & (x < K)[None, :])
                s = tile(begin_ptr, V, x, z, (x < K)[:, None] & (z < V)[None, :])
                recalled = product(k, s, kind, PRECISION, recalled)
            dr = product(tl.trans(m), tile(du_ptr, V, c, z, here_v), kind, PRECISION)
            dbeta += tl.sum(dr * (tile(v_ptr, v_time, c, z, here_v).to(tl.float32) - early * recalled), 1)
            dv = (beta[:, None] * dr).to(kind)
            put(dv_ptr + first * V, H * V, c, z, dv, here_v)
            dn = product(dr, tl.trans(tile(u_ptr, u_time, c, z, here_v)), kind, PRECISION, dn)
        dn = tl.where(c[:, None] > c[None, :], -between(total, c) * dn, 0.0)
        d_total = tl.zeros([C], tl.float32)
        for at in range(0, KP, keys):
            x = at + tl.arange(0, keys)
            here_k = held[:, None] & (x < K)[None, :]
            read = tl.zeros([C, keys], tl.float32)
            for start in tl.static_range(0, V, VP):
                z = start + tl.arange(0, VP)
                if V > VP:
                    du = tile(du_ptr, V, c, z, held[:, None] & (z < V)[None, :])
                    dv = (beta[:, None] * product(tl.trans(m), du, kind, PRECISION)).to(kind)
                if V > VP or keys < KP:
                    s = tile(begin_ptr, V, x, z, (x < K)[:, None] & (z < V)[None, :])
                read = product(dv, tl.trans(s), kind, PRECISION, read)
            if keys < KP:
                k = tile(k_ptr, k_time, c, x, here_k)
            wide_k = k.to(tl.float32)
            dn_k = product(dn, k, kind, PRECISION)
            dbeta += tl.sum(wide_k * dn_k, 1)
            read = beta[:, None] * dn_k - early * read
            written = product(tl.trans(beta[:, None] * dn), k, kind, PRECISION)
            dk = tile(dk_ptr + first * K, H * K, c, x, here_k)
            put(dk_ptr + first * K, H * K, c, x, dk.to(tl.float32) + read + written, here_k)
            d_total += tl.sum(wide_k * (read - written), 1)
        tl.store(dbeta_ptr + first + c * H, dbeta.to(dbeta_ptr.dtype.element_ty), mask=held)
        dg = tl.load(dg_ptr + first + c * H, mask=held, other=0.0)
        tl.store(dg_ptr + first + c * H, dg + from_totals(d_total), mask=held)


def _solve(call: Call) -> Prepared:
    batch, _, heads, key = call.k.shape
    padded = call.chunks * call.way.chunk
    m = call.empty(batch, heads, call.chunks, call.way.chunk, call.way.chunk)
    w, u = (call.empty(batch, heads, padded, width) for width in (key, call.v.shape[-1]))
    call.launch(_prepare, "prepare", (call.k, call.v, call.beta, call.g, call.length_B, m, w, u), (call.k, call.v))
    return Prepared(m, w, u.transpose(1, 2))


def _back(call: Call, solved: Prepared, begin: Tensor, du: Tensor, dk: Tensor, dg: Tensor) -> tuple[Tensor, Tensor]:
    """dv and dβ; dk and dg are added to."""
    assert call.beta is not None
    dv, dbeta = (call.unwritten(part, part.dtype) for part in (call.v, call.beta))
    pointers = (call.k, call.v, solved.u, call.beta, call.g, call.length_B, solved.m, begin, du, dk, dv, dbeta, dg)
    call.launch(_through_written, "through_written", pointers, (call.k, call.v, solved.u))
    return dv, dbeta


def gated_delta(
    inputs: Inputs, s_BHKV: Tensor, lengths_B: Tensor | None, *, exact: bool = True
) -> tuple[Tensor, Tensor]:
    """`naive.gated_delta`; the state and all sums in float32, and products in it too if `exact`, unless inputs are
    in bfloat16: then products and outputs are."""
    system = System(_solve, _back)
    return remember(inputs, s_BHKV, lengths_B, exact=exact, again=chunked.gated_delta, system=system)

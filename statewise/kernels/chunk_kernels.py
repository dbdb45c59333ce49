"""Triton kernels that linear attention and the gated delta rule share: a walk through states, and all chunks at once.

Only a state has to wait for the one before it. So a walk does nothing but carry states from chunk to chunk, and writes
down what each chunk begins with; everything else is done for all chunks side by side. With E = e^G, F = e^{G_C - G},
D = tril(e^{G_t - G_s}), what is written U (in linear attention v itself, in the delta rule U₀ - W S) and P = D (q kᵀ):

    states         S' = e^{G_C} S + kᵀ (F U)                               a walk forward, by columns of v
    outputs        y = P U + E (q S)
    from_outputs   Pᵀ dy, the part of dU that waits for no state           the delta rule only
    states_back    dU = Pᵀ dy + F (k dS'),  dS = e^{G_C} dS' + qᵀ (E dy) - Wᵀ dU    a walk back; without W, no dU
    gradients      the rest; in the delta rule, `gated_delta/triton.py` has what goes through U

In `gradients`, with dP = D (dy Uᵀ),

    dq = dP k + E (dy Sᵀ)        dk = dPᵀ q + F (U dS'ᵀ)        dv = Pᵀ dy + F (k dS')
    dG_t = q_t · dq_t - k_t · dk_t,  and at the chunk's end  + Σ S' dS' = e^{G_C} Σ S dS' + Σ_t k_t · F_t (U dS'ᵀ)_t

Operands of products have the type of the saved states: bfloat16 where inputs are, and float32 otherwise. Sums and
the states on their walk are float32 always.

B batch, T time, H heads, K key width, V value width, N chunks, C time steps of a chunk; KP is K filled up to a power of
two, VP the columns of v that a program has at a time. Only imported by kernels, since it imports Triton.
"""

import triton
import triton.language as tl


@triton.jit
def product(a, b, KIND: tl.constexpr, PRECISION: tl.constexpr, onto=None):
    """a b, added to what is there already."""
    return tl.dot(a.to(KIND), b.to(KIND), onto, input_precision=PRECISION)


@triton.jit
def tile(ptr, time_stride, c, x, here):
    """Time steps c from `ptr` on, numbers x of each."""
    return tl.load(ptr + c[:, None] * time_stride + x[None, :], mask=here, other=0.0)


@triton.jit
def put(ptr, time_stride, c, x, value, here):
    """The same places, written."""
    tl.store(ptr + c[:, None] * time_stride + x[None, :], value.to(ptr.dtype.element_ty), mask=here)


@triton.jit
def row_end(length_ptr, b, T, RAGGED: tl.constexpr):
    """How many time steps row b has."""
    if RAGGED:
        end = tl.load(length_ptr + b).to(tl.int32)
    else:
        end = T
    return end


@triton.jit
def own_chunk(length_ptr, T, H, N, C: tl.constexpr, RAGGED: tl.constexpr):
    """Of a program that has one chunk: number of row and head, row, head, chunk, and how many time steps are left."""
    program = tl.program_id(0).to(tl.int64)
    head, n = program // N, program % N
    return head, head // H, head % H, n, row_end(length_ptr, head // H, T, RAGGED) - (n * C).to(tl.int32)


@triton.jit
def decay(g_ptr, at, c, H, held):
    """G of time steps c from `at` on, and G at the chunk's end."""
    g = tl.load(g_ptr + at + c * H, mask=held, other=0.0).to(tl.float32)
    return tl.cumsum(g, 0), tl.sum(g, 0)


@triton.jit
def between(total, c):
    """e^{G_t - G_s} for s ≤ t, otherwise 0."""
    earlier = c[:, None] >= c[None, :]
    return tl.where(earlier, tl.exp(tl.where(earlier, total[:, None] - total[None, :], 0.0)), 0.0)


@triton.jit
def from_totals(d_total):
    """g_t is part of every G from t on."""
    return tl.sum(d_total, 0) - tl.cumsum(d_total, 0) + d_total


@triton.jit(do_not_specialize=["T", "H", "N"])
def states(
    k_ptr, u_ptr, g_ptr, w_ptr, s_ptr, length_ptr, begin_ptr, after_ptr,
    k_row, k_time, k_head, u_row, u_time, u_head, T, H, N,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr,
    DELTA: tl.constexpr, RAGGED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """What each chunk begins with, and the state after the last. With DELTA, u is U₀ before and U after."""
    kind: tl.constexpr = begin_ptr.dtype.element_ty
    head = (tl.program_id(0) // tl.cdiv(V, VP)).to(tl.int64)
    b, h = head // H, head % H
    c, x, z = tl.arange(0, C), tl.arange(0, KP), tl.program_id(0) % tl.cdiv(V, VP) * VP + tl.arange(0, VP)
    whole = (x < K)[:, None] & (z < V)[None, :]
    s = tile(s_ptr + head * K * V, V, x, z, whole)
    length = row_end(length_ptr, b, T, RAGGED)
    k_ptr += b * k_row + h * k_head
    u_ptr += b * u_row + h * u_head
    for step in range(tl.cdiv(length, C)):
        n = tl.cast(step, tl.int64)
        put(begin_ptr + (head * N + n) * K * V, V, x, z, s, whole)
        held = c < length - step * C
        here_k, here_v = held[:, None] & (x < K)[None, :], held[:, None] & (z < V)[None, :]
        k = tile(k_ptr + n * C * k_time, k_time, c, x, here_k)
        u = tile(u_ptr + n * C * u_time, u_time, c, z, here_v).to(tl.float32)
        total, end = decay(g_ptr, (b * T + n * C) * H + h, c, H, held)
        if DELTA:
            w = tile(w_ptr + (head * N + n) * C * K, K, c, x, here_k)
            u -= product(w, s, kind, PRECISION)
            put(u_ptr + n * C * u_time, u_time, c, z, u, here_v)
        late = tl.exp(end - total)[:, None]
        s = product(tl.trans(k), late * u, kind, PRECISION, tl.exp(end) * s)
    put(after_ptr + head * K * V, V, x, z, s, whole)


@triton.jit(do_not_specialize=["T", "H", "N"])
def outputs(
    q_ptr, k_ptr, u_ptr, g_ptr, length_ptr, begin_ptr, y_ptr,
    q_row, q_time, q_head, k_row, k_time, k_head, u_row, u_time, u_head, T, H, N,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr,
    RAGGED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    kind: tl.constexpr = begin_ptr.dtype.element_ty
    head, b, h, n, left = own_chunk(length_ptr, T, H, N, C, RAGGED)
    if left > 0:
        c, x = tl.arange(0, C), tl.arange(0, KP)
        here_k = (c < left)[:, None] & (x < K)[None, :]
        q = tile(q_ptr + b * q_row + h * q_head + n * C * q_time, q_time, c, x, here_k)
        k = tile(k_ptr + b * k_row + h * k_head + n * C * k_time, k_time, c, x, here_k)
        first = (b * T + n * C) * H + h
        total, _ = decay(g_ptr, first, c, H, c < left)
        p = (between(total, c) * product(q, tl.trans(k), kind, PRECISION)).to(kind)
        for start in range(0, V, VP):
            z = start + tl.arange(0, VP)
            here_v = (c < left)[:, None] & (z < V)[None, :]
            u = tile(u_ptr + b * u_row + h * u_head + n * C * u_time, u_time, c, z, here_v)
            s = tile(begin_ptr + (head * N + n) * K * V, V, x, z, (x < K)[:, None] & (z < V)[None, :])
            y = product(p, u, kind, PRECISION, tl.exp(total)[:, None] * product(q, s, kind, PRECISION))
            put(y_ptr + first * V, H * V, c, z, y, here_v)


@triton.jit(do_not_specialize=["T", "H", "N"])
def from_outputs(
    q_ptr, k_ptr, dy_ptr, g_ptr, length_ptr, du_ptr,
    q_row, q_time, q_head, k_row, k_time, k_head, dy_row, dy_time, dy_head, T, H, N,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr,
    RAGGED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    kind: tl.constexpr = du_ptr.dtype.element_ty
    head, b, h, n, left = own_chunk(length_ptr, T, H, N, C, RAGGED)
    if left > 0:
        c, x = tl.arange(0, C), tl.arange(0, KP)
        here_k = (c < left)[:, None] & (x < K)[None, :]
        q = tile(q_ptr + b * q_row + h * q_head + n * C * q_time, q_time, c, x, here_k)
        k = tile(k_ptr + b * k_row + h * k_head + n * C * k_time, k_time, c, x, here_k)
        total, _ = decay(g_ptr, (b * T + n * C) * H + h, c, H, c < left)
        p = (between(total, c) * product(q, tl.trans(k), kind, PRECISION)).to(kind)
        for start in range(0, V, VP):
            z = start + tl.arange(0, VP)
            here_v = (c < left)[:, None] & (z < V)[None, :]
            dy = tile(dy_ptr + b * dy_row + h * dy_head + n * C * dy_time, dy_time, c, z, here_v)
            put(du_ptr + (head * N + n) * C * V, V, c, z, product(tl.trans(p), dy, kind, PRECISION), here_v)


@triton.jit(do_not_specialize=["T", "H", "N"])
def states_back(
    q_ptr, k_ptr, dy_ptr, g_ptr, w_ptr, du_ptr, dafter_ptr, length_ptr, dlater_ptr, ds_ptr,
    q_row, q_time, q_head, k_row, k_time, k_head, dy_row, dy_time, dy_head, T, H, N,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr,
    DELTA: tl.constexpr, RAGGED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """What is wanted of the state after each chunk, and of the first. With DELTA, du is Pᵀ dy before and dU after."""
    kind: tl.constexpr = dlater_ptr.dtype.element_ty
    head = (tl.program_id(0) // tl.cdiv(V, VP)).to(tl.int64)
    b, h = head // H, head % H
    c, x, z = tl.arange(0, C), tl.arange(0, KP), tl.program_id(0) % tl.cdiv(V, VP) * VP + tl.arange(0, VP)
    whole = (x < K)[:, None] & (z < V)[None, :]
    ds = tile(dafter_ptr + head * K * V, V, x, z, whole)
    length = row_end(length_ptr, b, T, RAGGED)
    q_ptr += b * q_row + h * q_head
    k_ptr += b * k_row + h * k_head
    dy_ptr += b * dy_row + h * dy_head
    count = tl.cdiv(length, C)
    for back in range(count):
        n = tl.cast(count - 1 - back, tl.int64)
        put(dlater_ptr + (head * N + n) * K * V, V, x, z, ds, whole)
        held = c < length - (count - 1 - back) * C
        here_k, here_v = held[:, None] & (x < K)[None, :], held[:, None] & (z < V)[None, :]
        q = tile(q_ptr + n * C * q_time, q_time, c, x, here_k)
        dy = tile(dy_ptr + n * C * dy_time, dy_time, c, z, here_v)
        total, end = decay(g_ptr, (b * T + n * C) * H + h, c, H, held)
        kept = tl.exp(end) * ds
        if DELTA:
            k = tile(k_ptr + n * C * k_time, k_time, c, x, here_k)
            w = tile(w_ptr + (head * N + n) * C * K, K, c, x, here_k)
            du = tile(du_ptr + (head * N + n) * C * V, V, c, z, here_v).to(tl.float32)
            du += tl.exp(end - total)[:, None] * product(k, ds, kind, PRECISION)
            put(du_ptr + (head * N + n) * C * V, V, c, z, du, here_v)
            kept = product(tl.trans(w), -du, kind, PRECISION, kept)
        ds = product(tl.trans(q), tl.exp(total)[:, None] * dy, kind, PRECISION, kept)
    put(ds_ptr + head * K * V, V, x, z, ds, whole)


@triton.jit(do_not_specialize=["T", "H", "N"])
def gradients(
    q_ptr, k_ptr, u_ptr, g_ptr, length_ptr, begin_ptr, dlater_ptr, dy_ptr, dq_ptr, dk_ptr, dv_ptr, dg_ptr,
    q_row, q_time, q_head, k_row, k_time, k_head, u_row, u_time, u_head, dy_row, dy_time, dy_head, T, H, N,
    C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, KP: tl.constexpr, VP: tl.constexpr,
    DELTA: tl.constexpr, RAGGED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """With DELTA, dk and dg still lack the part that goes through U. Keys in parts of 64: registers hold no more."""
    kind: tl.constexpr = begin_ptr.dtype.element_ty
    head, b, h, n, left = own_chunk(length_ptr, T, H, N, C, RAGGED)
    if left > 0:
        c, held = tl.arange(0, C), tl.arange(0, C) < left
        first = (b * T + n * C) * H + h
        q_ptr += b * q_row + h * q_head + n * C * q_time
        k_ptr += b * k_row + h * k_head + n * C * k_time
        u_ptr += b * u_row + h * u_head + n * C * u_time
        dy_ptr += b * dy_row + h * dy_head + n * C * dy_time
        begin_ptr += (head * N + n) * K * V
        dlater_ptr += (head * N + n) * K * V
        total, end = decay(g_ptr, first, c, H, held)
        d = between(total, c)
        early, late = tl.exp(total)[:, None], tl.exp(end - total)[:, None]
        keys: tl.constexpr = min(KP, 64)
        dp = tl.zeros([C, C], tl.float32)
        for start in tl.static_range(0, V, VP):
            z = start + tl.arange(0, VP)
            here_v = held[:, None] & (z < V)[None, :]
            u = tile(u_ptr, u_time, c, z, here_v)
            dy = tile(dy_ptr, dy_time, c, z, here_v)
            dp = product(dy, tl.trans(u), kind, PRECISION, dp)
        dp = (d * dp).to(kind)
        if not DELTA:
            p = tl.zeros([C, C], tl.float32)
            for at in tl.static_range(0, KP, keys):
                x = at + tl.arange(0, keys)
                here_k = held[:, None] & (x < K)[None, :]
                q = tile(q_ptr, q_time, c, x, here_k)
                k = tile(k_ptr, k_time, c, x, here_k)
                p = product(q, tl.trans(k), kind, PRECISION, p)
            p = (d * p).to(kind)
            for start in tl.static_range(0, V, VP):
                z = start + tl.arange(0, VP)
                here_v = held[:, None] & (z < V)[None, :]
                dv = tl.zeros([C, VP], tl.float32)
                for at in range(0, KP, keys):
                    x = at + tl.arange(0, keys)
                    if keys < KP:
                        k = tile(k_ptr, k_time, c, x, held[:, None] & (x < K)[None, :])
                    ds = tile(dlater_ptr, V, x, z, (x < K)[:, None] & (z < V)[None, :])
                    dv = product(k, ds, kind, PRECISION, dv)
                if V > VP:
                    dy = tile(dy_ptr, dy_time, c, z, here_v)
                dv = product(tl.trans(p), dy, kind, PRECISION, late * dv)
                put(dv_ptr + first * V, H * V, c, z, dv, here_v)
        d_total = tl.zeros([C], tl.float32)
        overlap = 0.0
        for at in range(0, KP, keys):
            x = at + tl.arange(0, keys)
            here_k = held[:, None] & (x < K)[None, :]
            dq = tl.zeros([C, keys], tl.float32)
            dk = tl.zeros([C, keys], tl.float32)
            for start in tl.static_range(0, V, VP):
                z = start + tl.arange(0, VP)
                whole = (x < K)[:, None] & (z < V)[None, :]
                s = tile(begin_ptr, V, x, z, whole)
                ds = tile(dlater_ptr, V, x, z, whole)
                if V > VP:
                    here_v = held[:, None] & (z < V)[None, :]
                    u = tile(u_ptr, u_time, c, z, here_v)
                    dy = tile(dy_ptr, dy_time, c, z, here_v)
                dq = product(dy, tl.trans(s), kind, PRECISION, dq)
                dk = product(u, tl.trans(ds), kind, PRECISION, dk)
                overlap += tl.exp(end) * tl.sum(s.to(tl.float32) * ds.to(tl.float32))
            q = tile(q_ptr, q_time, c, x, here_k)
            k = tile(k_ptr, k_time, c, x, here_k)
            dq = product(dp, k, kind, PRECISION, early * dq)
            put(dq_ptr + first * K, H * K, c, x, dq, here_k)
            dk = late * dk
            overlap += tl.sum(k.to(tl.float32) * dk)
            dk = product(tl.trans(dp), q, kind, PRECISION, dk)
            put(dk_ptr + first * K, H * K, c, x, dk, here_k)
            d_total += tl.sum(q.to(tl.float32) * dq - k.to(tl.float32) * dk, 1)
        tl.store(dg_ptr + first + c * H, from_totals(d_total) + overlap, mask=held)

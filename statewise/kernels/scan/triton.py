"""The scan on a GPU, in chunks of time that programs of their own take side by side.

Three passes, as in `parallel.py`, over a and b only: each chunk is scanned from zero for what it adds and how it decays
(nothing but those two rows is written); a small pass carries the state from chunk to chunk; each chunk is then scanned
from what it begins with, and writes its states. The gradient is the same scan from the other end, and
`da_t = g_t · h_{t-1}` is formed in its last pass. Where batch and width alone fill the device, there is one chunk.

With GATED the inputs are z and x, and the gates are formed in registers, `a = σ(-z)` and `b = σ(z) x`. Then

    dx_t = σ(z_t) g_t        dz_t = σ(z_t) σ(-z_t) (x_t - h_{t-1}) g_t

Inputs are read where they are, in whatever precision; all sums are float32.

B batch, T time, D width, N chunks, L time steps of a chunk.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from statewise.kernels.gradients import through
from statewise.kernels.scan import naive, parallel
from statewise.kernels.time_axis import dense, past_end, wide
from statewise.kernels.with_triton import FUSED

_BLOCK = 128  # units of one program, each on a lane of its own
_BUSY = 1024  # programs that keep a large device busy
_SHORTEST = 32  # time steps of a chunk: a shorter one would mostly begin and end


@triton.jit
def _keep(a, GATED: tl.constexpr):
    """How much of the state stays."""
    a = a.to(tl.float32)
    if GATED:
        return tl.sigmoid(-a)
    return a


@triton.jit
def _enter(a, b, GATED: tl.constexpr):
    """What is added to it."""
    b = b.to(tl.float32)
    if GATED:
        return tl.sigmoid(a.to(tl.float32)) * b
    return b


@triton.jit(do_not_specialize=["T", "D", "N", "L"])
def _chunk_sums(
    a_ptr, b_ptr, decay_ptr, sum_ptr, a_row, a_time, b_row, b_time, T, D, N, L,
    BACK: tl.constexpr, GATED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What each chunk decays a state by, and what it adds to it. On the way back b is dy."""
    d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    inside = d < D
    a_ptr += row * a_row
    b_ptr += row * b_row
    h = tl.zeros([BLOCK], tl.float32)
    kept = tl.full([BLOCK], 1.0, tl.float32)
    for step in range(tl.minimum(L, T - n * L)):
        t = (n * L + step).to(tl.int64)
        if BACK:
            # g_t = dy_t + a_{t+1} g_{t+1}: from the end, and with the gate one time step later.
            a = _keep(tl.load(a_ptr + (T - t) * a_time + d, mask=inside & (t > 0), other=0.0), GATED)
            b = tl.load(b_ptr + (T - 1 - t) * b_time + d, mask=inside, other=0.0)
        else:
            z = tl.load(a_ptr + t * a_time + d, mask=inside, other=0.0)
            a = _keep(z, GATED)
            b = _enter(z, tl.load(b_ptr + t * b_time + d, mask=inside, other=0.0), GATED)
        h = a * h + b
        kept = kept * a
    tl.store(decay_ptr + (row * N + n) * D + d, kept, mask=inside)
    tl.store(sum_ptr + (row * N + n) * D + d, h, mask=inside)


@triton.jit(do_not_specialize=["D", "N"])
def _carry(start_ptr, decay_ptr, sum_ptr, begin_ptr, D, N, BACK: tl.constexpr, BLOCK: tl.constexpr):
    """What each chunk begins with."""
    d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1).to(tl.int64)
    inside = d < D
    h = tl.zeros([BLOCK], tl.float32)
    if not BACK:
        h = tl.load(start_ptr + row * D + d, mask=inside, other=0.0)
    for n in range(N):
        tl.store(begin_ptr + (row * N + n) * D + d, h, mask=inside)
        a = tl.load(decay_ptr + (row * N + n) * D + d, mask=inside, other=0.0)
        b = tl.load(sum_ptr + (row * N + n) * D + d, mask=inside, other=0.0)
        h = a * h + b


@triton.jit(do_not_specialize=["T", "D", "N", "L"])
def _forward(
    a_ptr, b_ptr, begin_ptr, y_ptr, a_row, a_time, b_row, b_time, T, D, N, L, GATED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    inside = d < D
    a_ptr += row * a_row
    b_ptr += row * b_row
    h = tl.load(begin_ptr + (row * N + n) * D + d, mask=inside, other=0.0)
    for step in range(tl.minimum(L, T - n * L)):
        t = (n * L + step).to(tl.int64)
        a = tl.load(a_ptr + t * a_time + d, mask=inside, other=0.0)
        b = tl.load(b_ptr + t * b_time + d, mask=inside, other=0.0)
        h = _keep(a, GATED) * h + _enter(a, b, GATED)
        tl.store(y_ptr + (row * T + t) * D + d, h, mask=inside)


@triton.jit(do_not_specialize=["T", "D", "N", "L"])
def _backward(
    a_ptr, b_ptr, dy_ptr, y_ptr, start_ptr, begin_ptr, da_ptr, db_ptr, dstart_ptr,
    a_row, a_time, b_row, b_time, T, D, N, L, GATED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    inside = d < D
    a_ptr += row * a_row
    b_ptr += row * b_row
    g = tl.load(begin_ptr + (row * N + n) * D + d, mask=inside, other=0.0)
    for step in range(tl.minimum(L, T - n * L)):
        t = (T - 1 - n * L - step).to(tl.int64)
        at = (row * T + t) * D + d
        later = tl.load(a_ptr + (t + 1) * a_time + d, mask=inside & (t < T - 1), other=0.0)
        g = _keep(later, GATED) * g + tl.load(dy_ptr + at, mask=inside, other=0.0)
        before = tl.load(y_ptr + at - D, mask=inside & (t > 0), other=0.0)
        before += tl.load(start_ptr + row * D + d, mask=inside & (t == 0), other=0.0)
        a = tl.load(a_ptr + t * a_time + d, mask=inside, other=0.0).to(tl.float32)
        da, db = g * before, g
        if GATED:
            b = tl.load(b_ptr + t * b_time + d, mask=inside, other=0.0).to(tl.float32)
            db = tl.sigmoid(a) * g
            da = tl.sigmoid(-a) * (b - before) * db
        tl.store(da_ptr + at, da, mask=inside)
        tl.store(db_ptr + at, db, mask=inside)
        if t == 0:
            tl.store(dstart_ptr + row * D + d, _keep(a, GATED) * g, mask=inside)


def _plan(batch: int, time: int, width: int) -> tuple[int, int, int]:
    """Blocks of units, chunks, and time steps of a chunk."""
    blocks = triton.cdiv(width, _BLOCK)
    wanted = max(1, min(_BUSY // (batch * blocks), triton.cdiv(time, _SHORTEST)))
    length = triton.cdiv(time, wanted)
    return blocks, triton.cdiv(time, length), length


def _begins(
    a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, *, back: bool, gated: bool
) -> tuple[Tensor, tuple[int, int, int]]:
    """`[B, N, D]`, what each chunk begins with, and the plan."""
    batch, time, width = a_BTD.shape
    plan = blocks, chunks, length = _plan(batch, time, width)
    if chunks == 1:
        return (torch.zeros_like(h_BD) if back else h_BD)[:, None].contiguous(), plan
    decay, total, begin = (h_BD.new_empty(batch, chunks, width) for _ in range(3))
    _chunk_sums[(blocks, chunks, batch)](
        a_BTD, b_BTD, decay, total, *_strides(a_BTD, b_BTD), time, width, chunks, length,
        BACK=back, GATED=gated, BLOCK=_BLOCK, num_warps=4, **FUSED,
    )  # fmt: skip
    _carry[(blocks, batch)](h_BD, decay, total, begin, width, chunks, BACK=back, BLOCK=_BLOCK, num_warps=4, **FUSED)
    return begin, plan


def _strides(*parts: Tensor) -> list[int]:
    """Of row and time; units lie side by side."""
    return [stride for part in parts for stride in part.stride()[:2]]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, gated: bool) -> Tensor:
        batch, time, width = a_BTD.shape
        begin_BND, (blocks, chunks, length) = _begins(a_BTD, b_BTD, h_BD, back=False, gated=gated)
        y_BTD = h_BD.new_empty(batch, time, width)
        _forward[(blocks, chunks, batch)](
            a_BTD, b_BTD, begin_BND, y_BTD, *_strides(a_BTD, b_BTD), time, width, chunks, length,
            GATED=gated, BLOCK=_BLOCK, num_warps=4, **FUSED,
        )  # fmt: skip
        ctx.save_for_backward(a_BTD, b_BTD, h_BD, y_BTD)
        ctx.gated = gated
        return y_BTD

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        a_BTD, b_BTD, h_BD, y_BTD = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this again: the other form can
            a, b = wide(a_BTD, b_BTD)
            if ctx.gated:
                a, b = naive.gates(a, b)
            again_BTD, _ = parallel.scan(a, b, h_BD, None)
            return *through((again_BTD,), (a_BTD, b_BTD, h_BD), gradients), None
        dy_BTD = gradients[0].contiguous()
        batch, time, width = a_BTD.shape
        begin_BND, (blocks, chunks, length) = _begins(a_BTD, dy_BTD, h_BD, back=True, gated=ctx.gated)
        da_BTD, db_BTD = (part.new_empty(part.shape) for part in (a_BTD, b_BTD))
        dh_BD = torch.empty_like(h_BD)
        _backward[(blocks, chunks, batch)](
            a_BTD, b_BTD, dy_BTD, y_BTD, h_BD, begin_BND, da_BTD, db_BTD, dh_BD,
            *_strides(a_BTD, b_BTD), time, width, chunks, length, GATED=ctx.gated, BLOCK=_BLOCK, num_warps=4, **FUSED,
        )  # fmt: skip
        return da_BTD, db_BTD, dh_BD, None


def _scanned(
    a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, lengths_B: Tensor | None, *, at_rest: float, gated: bool
) -> tuple[Tensor, Tensor]:
    if lengths_B is not None:
        a_BTD, b_BTD = past_end(a_BTD, lengths_B, at_rest), past_end(b_BTD, lengths_B)
    a_BTD, b_BTD = (part.expand(torch.broadcast_shapes(a_BTD.shape, b_BTD.shape)) for part in (a_BTD, b_BTD))
    y_BTD: Tensor = _Scan.apply(*dense(a_BTD, b_BTD), h_BD.contiguous(), gated)
    after_BD = y_BTD[:, -1]
    return y_BTD if lengths_B is None else past_end(y_BTD, lengths_B), after_BD


def scan(a_BTD: Tensor, b_BTD: Tensor, h_BD: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """`naive.scan`; a and b in any precision, the state and all sums in float32."""
    return _scanned(a_BTD, b_BTD, h_BD, lengths_B, at_rest=1.0, gated=False)


def gated_scan(z_BTD: Tensor, x_BTD: Tensor, h_BD: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """`naive.scan` of `naive.gates`; z and x in any precision, gates, state and all sums in float32."""
    return _scanned(z_BTD, x_BTD, h_BD, lengths_B, at_rest=float("-inf"), gated=True)

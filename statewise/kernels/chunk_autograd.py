"""Launches and gradients of the kernels in `chunk_kernels.py`, for linear attention and the gated delta rule alike.

How kernels are launched stands in a table, by the type of products, measured on an H200
(`benchmarks/linear_recurrence_tune.py`). Nothing is tuned when a program runs.

In bfloat16, products are Hopper's wgmma. There, Triton 3.6 gave wrong results, and an illegal memory access, for tiles
with fewer keys than columns of v, of 16 keys, or with keys masked. So keys are filled up with zeros to a whole tile.

B batch, T time, H heads, K key width, V value width, N chunks, C time steps of a chunk.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels import chunk_kernels
from statewise.kernels.associative_memory import Form, Inputs
from statewise.kernels.gpu import gpu_of
from statewise.kernels.gradients import through
from statewise.kernels.time_axis import dense, unwritten, wide
from statewise.kernels.with_triton import FUSED


class Launch(NamedTuple):
    """How a kernel is launched."""

    columns: int  # of v, that a program has at a time
    warps: int
    stages: int  # of its pipeline


_WALKS = ("states", "states_back")
_ALL_AT_ONCE = ("prepare", "outputs", "from_outputs", "gradients", "through_written")
_NARROW = dict.fromkeys(_WALKS, Launch(32, 4, 3)) | dict.fromkeys(_ALL_AT_ONCE, Launch(64, 4, 1))  # in bfloat16
_WIDE = dict.fromkeys((*_WALKS, *_ALL_AT_ONCE), Launch(32, 8, 1))  # in float32
_PIPELINE = 180 * 1024  # bytes of shared memory that three stages of the widest walk take
_CHUNK = {torch.bfloat16: 64, torch.float32: 32}
_NARROWEST = {torch.bfloat16: 32, torch.float32: 16}  # tile


def _filled(width: int, kind: torch.dtype) -> int:
    """Up to a power of two that products take."""
    return max(_NARROWEST[kind], 1 << (width - 1).bit_length())


def launch_of(name: str, kind: torch.dtype, shared_bytes: int) -> Launch:
    """How a kernel is launched where a block has so much shared memory."""
    launch = (_NARROW if kind == torch.bfloat16 else _WIDE)[name]
    return launch if shared_bytes >= _PIPELINE else launch._replace(stages=1)


class Prepared(NamedTuple):
    """The triangular systems of all chunks, solved: U = u - w S."""

    m: Tensor  # the inverses [B, H, N, C, C]
    w: Tensor  # [B, H, N C, K]
    u: Tensor  # [B, N C, H, V]; kernels replace U₀ by U


class System(NamedTuple):
    """What the delta rule has besides linear attention."""

    solve: Callable[["Call"], Prepared]
    back: Callable[["Call", Prepared, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class Way(NamedTuple):
    """How a call is computed, apart from its numbers."""

    kind: torch.dtype  # of the operands of products
    exact: bool  # products of float32 are wanted as such
    again: Form  # the same, for second gradients
    system: System | None  # the delta rule's

    @property
    def chunk(self) -> int:
        return _CHUNK[self.kind]


class Call(NamedTuple):
    """What all kernels of one call are given."""

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor | None  # the delta rule's
    g: Tensor
    length_B: Tensor | None
    way: Way

    @property
    def chunks(self) -> int:
        return -(-self.q.shape[1] // self.way.chunk)

    def empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.way.kind, device=self.q.device)

    def unwritten(self, like: Tensor, dtype: torch.dtype) -> Tensor:
        return unwritten(self.length_B is not None)(like.shape, dtype=dtype, device=like.device)

    def launch(
        self, kernel: Any, name: str, pointers: tuple[Tensor | None, ...], strided: tuple[Tensor, ...], **more: bool
    ) -> None:
        """`strided`: the tensors [B, T, H, ...] whose strides the kernel takes, in its order."""
        batch, time, heads, key = self.q.shape
        value = self.v.shape[-1]
        key_up = _filled(key, self.way.kind)
        shared = gpu_of(self.q.device.index or 0).shared_bytes if self.q.is_cuda else 0
        columns, warps, stages = launch_of(name, self.way.kind, shared)
        columns = min(columns, _filled(value, self.way.kind))
        if self.way.kind == torch.bfloat16:
            columns = min(columns, key_up)
        parts = -(-value // columns) if name in _WALKS else self.chunks
        strides = [stride for part in strided for stride in part.stride()[:3]]
        exact = self.way.exact and not torch.backends.cuda.matmul.allow_tf32
        kernel[(batch * heads * parts,)](
            *(self.q if part is None else part for part in pointers), *strides, time, heads, self.chunks,
            C=self.way.chunk, K=key, V=value, KP=key_up, VP=columns, RAGGED=self.length_B is not None,
            PRECISION="tf32x3" if exact else "tf32", num_warps=warps, num_stages=stages, **more, **FUSED,
        )  # fmt: skip


class _Memory(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, beta: Tensor | None, g: Tensor, s: Tensor,
        length_B: Tensor | None, way: Way,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        call = Call(q, k, v, beta, g, length_B, way)
        batch, _, heads, key = q.shape
        begin = call.empty(batch, heads, call.chunks, key, v.shape[-1])
        after = torch.empty_like(s)
        y = call.unwritten(v, way.kind)
        solved = () if way.system is None else way.system.solve(call)
        _, w, u = solved or (None, None, v)
        pointers = (k, u, g, w, s, length_B, begin, after)
        call.launch(chunk_kernels.states, "states", pointers, (k, u), DELTA=bool(solved))
        call.launch(chunk_kernels.outputs, "outputs", (q, k, u, g, length_B, begin, y), (q, k, u))
        ctx.save_for_backward(q, k, v, beta, g, s, length_B, begin, *solved)
        ctx.way = way
        return y, after

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, beta, g, s, length_B, begin, *solved = ctx.saved_tensors
        way: Way = ctx.way
        if torch.is_grad_enabled():  # somebody will differentiate this again: the other form can
            inputs = [part for part in (q, k, v, beta, g, s) if part is not None]
            *along, begun = wide(*inputs)
            found = iter(through(way.again(tuple(along), begun, length_B), inputs, gradients))
            return *(None if part is None else next(found) for part in (q, k, v, beta, g, s)), None, None
        call = Call(q, k, v, beta, g, length_B, way)
        (dy,), dafter = dense(gradients[0]), gradients[1].contiguous()
        _, w, u = solved or (None, None, v)
        du = torch.empty_like(u)  # in the order of u's memory; without a system nobody looks
        if solved:
            call.launch(chunk_kernels.from_outputs, "from_outputs", (q, k, dy, g, length_B, du), (q, k, dy))
        dlater, ds = torch.empty_like(begin), torch.empty_like(s)
        walked = (q, k, dy, g, w, du, dafter, length_B, dlater, ds)
        call.launch(chunk_kernels.states_back, "states_back", walked, (q, k, dy), DELTA=bool(solved))
        dq, dk = (call.unwritten(part, part.dtype) for part in (q, k))
        dg = call.unwritten(g, torch.float32)
        dv, dbeta = None if solved else call.unwritten(v, v.dtype), None
        pointers = (q, k, u, g, length_B, begin, dlater, dy, dq, dk, dv, dg)
        call.launch(chunk_kernels.gradients, "gradients", pointers, (q, k, u, dy), DELTA=bool(solved))
        if way.system is not None:
            dv, dbeta = way.system.back(call, Prepared(*solved), begin, du, dk, dg)
        return dq, dk, dv, dbeta, dg.to(g.dtype), ds, None, None


def remember(
    inputs: Inputs, s_BHKV: Tensor, lengths_B: Tensor | None, *, exact: bool, again: Form, system: System | None = None
) -> tuple[Tensor, Tensor]:
    """Outputs, and the state after the last time step. Inputs: q, k, v, β in the delta rule, and g."""
    q, k, v = inputs[:3]
    *beta, g = (part.contiguous() for part in inputs[3:])
    key, value = k.shape[-1], v.shape[-1]
    kind = torch.bfloat16 if {part.dtype for part in (q, k, v)} == {torch.bfloat16} else torch.float32
    more_key = more_value = 0
    if kind == torch.bfloat16:
        more_key = _filled(key, kind) - key
        more_value = -value % min(64, key + more_key) if system else 0  # the delta rule has been tried on whole tiles
    if more_key or more_value:
        q, k, v = F.pad(q, (0, more_key)), F.pad(k, (0, more_key)), F.pad(v, (0, more_value))
        s_BHKV = F.pad(s_BHKV, (0, more_value, 0, more_key))
    q, k, v = dense(q, k, v)
    if lengths_B is not None:
        lengths_B = lengths_B.clamp(max=q.shape[1])
    way = Way(kind, exact and q.dtype == torch.float32, again, system)
    given = (q, k, v, beta[0] if beta else None, g, s_BHKV.contiguous())
    y_BTHV, after_BHKV = _Memory.apply(*given, lengths_B, way)
    if more_key or more_value:
        y_BTHV, after_BHKV = y_BTHV[..., :value], after_BHKV[..., :key, :value]
    return y_BTHV, after_BHKV

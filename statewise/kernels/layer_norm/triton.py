"""Normalisation of vectors on a GPU, in the precision that its reader wants.

Forward, a program takes a few vectors. Backward, a fixed number of programs go through all of them: each writes the
gradient of its vectors and keeps, on the chip, its share of those of gain and bias, which one small sum puts together.
The order of all sums depends on shapes alone.

N vectors, D width, P programs.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from statewise.core import transformed
from statewise.kernels.gradients import is_wanted, through
from statewise.kernels.layer_norm import naive
from statewise.kernels.with_triton import FUSED, dependent_launch

_HELD = 2048  # numbers of a tile: as many vectors as fit
_PROGRAMS = 528  # backward: a few for each multiprocessor


@triton.jit(do_not_specialize=["N", "eps"])
def _forward(
    x_ptr, more_ptr, gain_ptr, bias_ptr, y_ptr, total_ptr, mean_ptr, scale_ptr, N, D, eps,
    CENTRED: tl.constexpr, BIASED: tl.constexpr, SUM: tl.constexpr, KEEP: tl.constexpr, EARLY: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, BLOCK)
    gain = tl.load(gain_ptr + d, mask=d < D, other=0.0).to(tl.float32)
    if BIASED:
        bias = tl.load(bias_ptr + d, mask=d < D, other=0.0).to(tl.float32)
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    inside = (n < N)[:, None] & (d < D)[None, :]
    at = n.to(tl.int64)[:, None] * D + d[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if SUM:  # what is normalised is the sum as whoever reads it next sees it
        total = (x + tl.load(more_ptr + at, mask=inside, other=0.0).to(tl.float32)).to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + at, total, mask=inside)
        x = total.to(tl.float32)
    if CENTRED:
        mean = tl.sum(x, 1) / D
        x = tl.where(inside, x - mean[:, None], 0.0)
        if KEEP:
            tl.store(mean_ptr + n, mean, mask=n < N)
    scale = 1 / tl.sqrt(tl.sum(x * x, 1) / D + eps)
    if KEEP:
        tl.store(scale_ptr + n, scale, mask=n < N)
    y = x * scale[:, None] * gain[None, :]
    if BIASED:
        y += bias[None, :]
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["N"])
def _backward(
    x_ptr, gain_ptr, dy_ptr, dtotal_ptr, mean_ptr, scale_ptr, dx_ptr, dmore_ptr, shares_ptr, N, D, P,
    CENTRED: tl.constexpr, SUM: tl.constexpr, TWICE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """SUM: x is a sum, which others read too (dtotal). TWICE: its two parts want the gradient in two precisions."""
    p = tl.program_id(0)
    d = tl.arange(0, BLOCK)
    gain = tl.load(gain_ptr + d, mask=d < D, other=0.0).to(tl.float32)
    to_gain = tl.zeros([ROWS, BLOCK], tl.float32)
    to_bias = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(p * ROWS, N, P * ROWS):
        n = first + tl.arange(0, ROWS)
        inside = (n < N)[:, None] & (d < D)[None, :]
        at = n.to(tl.int64)[:, None] * D + d[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(scale_ptr + n, mask=n < N, other=0.0)
        if CENTRED:
            x = tl.where(inside, x - tl.load(mean_ptr + n, mask=n < N, other=0.0)[:, None], 0.0)
        x = x * scale[:, None]
        to_gain += dy * x
        to_bias += dy
        g = dy * gain[None, :]
        dx = g - x * (tl.sum(g * x, 1) / D)[:, None]
        if CENTRED:
            dx -= (tl.sum(g, 1) / D)[:, None]
        dx *= scale[:, None]
        if SUM:
            dx += tl.load(dtotal_ptr + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        if TWICE:
            tl.store(dmore_ptr + at, dx.to(dmore_ptr.dtype.element_ty), mask=inside)
    tl.store(shares_ptr + p * D + d, tl.sum(to_gain, 0), mask=d < D)
    tl.store(shares_ptr + (P + p) * D + d, tl.sum(to_bias, 0), mask=d < D)


def _tile(width: int) -> dict[str, int]:
    block = triton.next_power_of_2(width)
    return {"ROWS": max(1, _HELD // block), "BLOCK": block, "num_warps": 4 if block <= _HELD else 8}


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, gain_D: Tensor, bias_D: Tensor | None, eps: float, centred: bool, dtype: torch.dtype
    ) -> Tensor:
        kept = tuple(torch.empty(len(x_ND), dtype=torch.float32, device=x_ND.device) for _ in range(2))
        y_ND = _launch(x_ND, None, gain_D, bias_D, eps, centred=centred, dtype=dtype, kept=kept)
        ctx.save_for_backward(x_ND, gain_D, bias_D, *kept)
        ctx.eps, ctx.centred = eps, centred
        return y_ND

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x_ND, gain_D, bias_D, *_ = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this again
            y_ND = naive.norm(x_ND, gain_D, bias_D, ctx.eps, centred=ctx.centred)
            return *through((y_ND,), (x_ND, gain_D, bias_D), gradients), None, None, None
        dx_ND, _, dgain_D, dbias_D = _launch_backward(ctx, x_ND, gradients[0], None, (x_ND.dtype, x_ND.dtype))
        return dx_ND, dgain_D, dbias_D, None, None, None


class _SumAndNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, more_ND: Tensor, gain_D: Tensor, bias_D: Tensor | None, eps: float, centred: bool,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        kept = tuple(torch.empty(len(x_ND), dtype=torch.float32, device=x_ND.device) for _ in range(2))
        total_ND = _sum_like(x_ND, more_ND)
        y_ND = _launch(x_ND, (more_ND, total_ND), gain_D, bias_D, eps, centred=centred, dtype=dtype, kept=kept)
        ctx.save_for_backward(total_ND, gain_D, bias_D, *kept)
        ctx.eps, ctx.centred, ctx.dtypes = eps, centred, (x_ND.dtype, more_ND.dtype)
        ctx.set_materialize_grads(False)
        return total_ND, y_ND

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        total_ND, gain_D, bias_D, *_ = ctx.saved_tensors
        dtotal_ND, dy_ND = gradients
        if dy_ND is None or torch.is_grad_enabled():  # nobody reads the norm, or this will be differentiated again
            y_ND = naive.norm(total_ND, gain_D, bias_D, ctx.eps, centred=ctx.centred)
            part_ND, dgain_D, dbias_D = through((y_ND,), (total_ND, gain_D, bias_D), (dy_ND,))
            parts = [part for part in (part_ND, dtotal_ND) if part is not None]
            both = [sum(parts[1:], start=parts[0]).to(dtype) if parts else None for dtype in ctx.dtypes]
            return *both, dgain_D, dbias_D, None, None, None
        return *_launch_backward(ctx, total_ND, dy_ND, dtotal_ND, ctx.dtypes), None, None, None


def _launch_backward(
    ctx: Any, x_ND: Tensor, dy_ND: Tensor, dtotal_ND: Tensor | None, dtypes: tuple[torch.dtype, torch.dtype]
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients by both parts of x, in these precisions (one tensor where they agree), by gain, and by bias."""
    _, gain_D, bias_D, mean_N, scale_N = ctx.saved_tensors
    (count, width), tile = x_ND.shape, _tile(x_ND.shape[1])
    programs = min(_PROGRAMS, triton.cdiv(count, tile["ROWS"]))
    dx_ND, twice = torch.empty_like(x_ND, dtype=dtypes[0]), dtypes[0] != dtypes[1]
    dmore_ND = torch.empty_like(x_ND, dtype=dtypes[1]) if twice else dx_ND
    shares_2PD = torch.empty(2, programs, width, dtype=torch.float32, device=x_ND.device)
    dy_ND = dy_ND.contiguous()
    _backward[(programs,)](
        x_ND, gain_D, dy_ND, dy_ND if dtotal_ND is None else dtotal_ND.contiguous(), mean_N, scale_N, dx_ND, dmore_ND,
        shares_2PD, count, width, programs,
        CENTRED=ctx.centred, SUM=dtotal_ND is not None, TWICE=twice, **tile, **FUSED,
    )  # fmt: skip
    dgain_D, dbias_D = shares_2PD.sum(1).to(gain_D.dtype)
    return dx_ND, dmore_ND, dgain_D, None if bias_D is None else dbias_D


def _sum_like(x_ND: Tensor, more_ND: Tensor) -> Tensor:
    """Room for `x + more`."""
    return torch.empty_like(x_ND, dtype=torch.promote_types(x_ND.dtype, more_ND.dtype))


def norm(
    x_ND: Tensor, gain_D: Tensor, bias_D: Tensor | None, eps: float, *, centred: bool, dtype: torch.dtype
) -> Tensor:
    x_ND = x_ND.contiguous()
    if is_wanted((x_ND, gain_D, bias_D)) or transformed():
        y_ND: Tensor = _Norm.apply(x_ND, gain_D, bias_D, eps, centred, dtype)
        return y_ND
    return _launch(x_ND, None, gain_D, bias_D, eps, centred=centred, dtype=dtype)


def sum_and_norm(
    x_ND: Tensor,
    more_ND: Tensor,
    gain_D: Tensor,
    bias_D: Tensor | None,
    eps: float,
    *,
    centred: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """`x + more`, and its norm."""
    x_ND, more_ND = x_ND.contiguous(), more_ND.contiguous()
    if is_wanted((x_ND, more_ND, gain_D, bias_D)):
        both: tuple[Tensor, Tensor] = _SumAndNorm.apply(x_ND, more_ND, gain_D, bias_D, eps, centred, dtype)
        return both
    total_ND = _sum_like(x_ND, more_ND)
    return total_ND, _launch(x_ND, (more_ND, total_ND), gain_D, bias_D, eps, centred=centred, dtype=dtype)


def _launch(
    x_ND: Tensor,
    sum_of: tuple[Tensor, Tensor] | None,
    gain_D: Tensor,
    bias_D: Tensor | None,
    eps: float,
    *,
    centred: bool,
    dtype: torch.dtype,
    kept: tuple[Tensor, ...] = (),
) -> Tensor:
    """The norm of x, or of a sum: of what is added, written to where. `kept` receives means and scales for backward."""
    (count, width), tile = x_ND.shape, _tile(x_ND.shape[1])
    y_ND = torch.empty(x_ND.shape, dtype=dtype, device=x_ND.device)
    # What is not there is neither read nor written; any address will do.
    more_ND, total_ND = sum_of or (x_ND, y_ND)
    mean_N, scale_N = kept or (gain_D, gain_D)
    _forward[(triton.cdiv(count, tile["ROWS"]),)](
        x_ND, more_ND, gain_D, gain_D if bias_D is None else bias_D, y_ND, total_ND, mean_N, scale_N, count, width, eps,
        CENTRED=centred, BIASED=bias_D is not None, SUM=sum_of is not None, KEEP=bool(kept), **tile,
        **({"EARLY": False} if kept else dependent_launch(x_ND)), **FUSED,
    )  # fmt: skip
    return y_ND

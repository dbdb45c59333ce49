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
    x_ptr, gain_ptr, dy_ptr, mean_ptr, scale_ptr, dx_ptr, shares_ptr, N, D, P,
    CENTRED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
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
        tl.store(dx_ptr + at, (dx * scale[:, None]).to(dx_ptr.dtype.element_ty), mask=inside)
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
        x_ND, gain_D, bias_D, mean_N, scale_N = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this again
            y_ND = naive.norm(x_ND, gain_D, bias_D, ctx.eps, centred=ctx.centred)
            return *through((y_ND,), (x_ND, gain_D, bias_D), gradients), None, None, None
        count, width = x_ND.shape
        tile = _tile(width)
        programs = min(_PROGRAMS, triton.cdiv(count, tile["ROWS"]))
        dx_ND = torch.empty_like(x_ND)
        shares_2PD = torch.empty(2, programs, width, dtype=torch.float32, device=x_ND.device)
        _backward[(programs,)](
            x_ND, gain_D, gradients[0].contiguous(), mean_N, scale_N, dx_ND, shares_2PD, count, width, programs,
            CENTRED=ctx.centred, **tile, **FUSED,
        )  # fmt: skip
        dgain_D, dbias_D = shares_2PD.sum(1).to(gain_D.dtype)
        return dx_ND, dgain_D, None if bias_D is None else dbias_D, None, None, None


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
    """`x + more`, and its norm; no gradients."""
    x_ND = x_ND.contiguous()
    total_ND = torch.empty_like(x_ND)
    sum_of = (more_ND.contiguous(), total_ND)
    return total_ND, _launch(x_ND, sum_of, gain_D, bias_D, eps, centred=centred, dtype=dtype)


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

"""Rotary positions on a GPU: read once, turned, written once. The way back is the same turn the other way round.

A program takes some tokens, finds their cosines and sines, and goes through all heads with them.

B batch, T time, H heads, K width of a head.
"""

import math
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from statewise.kernels.rotary.naive import Scaling, rates
from statewise.kernels.with_triton import FUSED

_TOKENS = 16  # of one program


@triton.jit(do_not_specialize=["N", "T", "H", "sign"])
def _turn(
    x_ptr, at_ptr, turn_ptr, y_ptr, N, T, H, HALF, row, token, head, sign,
    ODD: tl.constexpr, TOKENS: tl.constexpr, UNITS: tl.constexpr, TWO_PI: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    i = tl.arange(0, UNITS)
    there = n < N
    inside = there[:, None] & (i < HALF)[None, :]
    # In float64, and without whole turns: after millions of tokens float32 has no digits left for the rest.
    at = tl.load(at_ptr + n, mask=there, other=0).to(tl.float64)
    turn = at[:, None] * tl.load(turn_ptr + i, mask=i < HALF, other=0.0)[None, :]
    angle = ((turn - tl.floor(turn + 0.5)) * TWO_PI).to(tl.float32)
    cos, sin = tl.cos(angle), tl.sin(angle) * sign
    width = 2 * HALF + ODD
    from_ = (n // T).to(tl.int64) * row + (n % T).to(tl.int64) * token
    to = n.to(tl.int64) * H * width
    for h in range(H):
        x = x_ptr + from_[:, None] + h * head + i[None, :]
        y = y_ptr + to[:, None] + h * width + i[None, :]
        first = tl.load(x, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(x + HALF, mask=inside, other=0.0).to(tl.float32)
        tl.store(y, (first * cos - second * sin).to(y_ptr.dtype.element_ty), mask=inside)
        tl.store(y + HALF, (second * cos + first * sin).to(y_ptr.dtype.element_ty), mask=inside)
        if ODD:
            last = tl.load(x_ptr + from_ + h * head + 2 * HALF, mask=there, other=0.0)
            tl.store(y_ptr + to + h * width + 2 * HALF, last, mask=there)


@cache
def _turns(half: int, base: float, scaling: Scaling | None, device: torch.device) -> Tensor:
    """A token's share of a whole turn, once for all calls: found at the first, never inside of a captured graph."""
    return (rates(half, base=base, scaling=scaling, device=torch.device("cpu")) / (2 * math.pi)).to(device)


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BTHK: Tensor, at_BT: Tensor, base: float, scaling: Scaling | None, sign: float) -> Tensor:
        ctx.save_for_backward(at_BT)
        ctx.base, ctx.scaling, ctx.sign = base, scaling, sign
        batch, time, heads, width = x_BTHK.shape
        x_BTHK = x_BTHK if x_BTHK.stride(-1) == 1 else x_BTHK.contiguous()
        y_BTHK = torch.empty(x_BTHK.shape, dtype=x_BTHK.dtype, device=x_BTHK.device)
        half, tokens = width // 2, batch * time
        _turn[(triton.cdiv(tokens, _TOKENS),)](
            x_BTHK, at_BT.contiguous(), _turns(half, base, scaling, x_BTHK.device), y_BTHK,
            tokens, time, heads, half, *x_BTHK.stride()[:3], sign,
            ODD=width % 2, TOKENS=_TOKENS, UNITS=triton.next_power_of_2(half), TWO_PI=2 * math.pi, num_warps=4, **FUSED,
        )  # fmt: skip
        return y_BTHK

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (at_BT,) = ctx.saved_tensors
        return _Rotate.apply(gradients[0], at_BT, ctx.base, ctx.scaling, -ctx.sign), None, None, None, None


def rotate(x_BTHK: Tensor, at_BT: Tensor, base: float, scaling: Scaling | None = None) -> Tensor:
    turned: Tensor = _Rotate.apply(x_BTHK, at_BT.expand(x_BTHK.shape[:2]), base, scaling, 1.0)
    return turned

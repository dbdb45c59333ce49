"""The short convolution on a GPU: a tile of time steps and channels a program, one kernel forward and two backward.

With p = Σ_j w_j x_{t-W+j}, y = silu(p), and inputs before the beginning taken from the window, on the way back

    dp_t = silu'(p_t) dy_t        dx_s = Σ_j w_j dp_{s+W-j}        dw_j = Σ_t dp_t x_{t-W+j}

p is not kept but formed again, once, where dp is; a second kernel reads dp at the taps' time steps, for dx and for dw,
with s in place of t. A program's part of dw is written down and summed at the end, in a fixed order. How many channels
there are is part of what is compiled: a kernel that knows them to be a multiple of 16 reads many at once.

B batch, T time, C channels, K taps, W = K - 1 inputs that are remembered; here L time steps and D channels of a tile.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from statewise.kernels.gradients import through
from statewise.kernels.short_convolution import naive
from statewise.kernels.time_axis import dense, row_lengths
from statewise.kernels.with_triton import FUSED


class Tile(NamedTuple):
    """What a program has."""

    steps: int
    channels: int
    warps: int
    tiles: int = 1  # one after the other

    def sizes(self, taps: int) -> dict[str, int]:
        return {"K": taps, "L": self.steps, "D": self.channels, "num_warps": self.warps, "num_stages": 1}


_TILE = Tile(32, 128, 4)
_SUMMED = Tile(4, 512, 2, tiles=16)  # a thread has all time steps of its channels: nothing passes between threads


@triton.jit
def _input(x_ptr, window_ptr, x_time, first, i, d, length, C, W: tl.constexpr):
    """What stands i time steps after `first`, where x_ptr is; before 0 in the window, past the end nothing."""
    s, inside = first + i, (d < C)[None, :]
    now = ((s >= 0) & (s < length))[:, None] & inside
    x = tl.load(x_ptr + i[:, None] * x_time + d[None, :], mask=now, other=0.0).to(tl.float32)
    if first < W:  # few tiles look into the window
        earlier = ((s < 0) & (s >= -W))[:, None] & inside
        x += tl.load(window_ptr + (s + W)[:, None] * C + d[None, :], mask=earlier, other=0.0).to(tl.float32)
    return x


@triton.jit
def _weight(weight_ptr, d, j, C):
    """Of tap j; weights are [K, C] here, so that those of neighbours are read together."""
    return tl.load(weight_ptr + j * C + d, mask=d < C, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _summed(
    x_ptr, window_ptr, weight_ptr, x_time, first, i, d, length, C, K: tl.constexpr, L: tl.constexpr, D: tl.constexpr
):
    p = tl.zeros([L, D], tl.float32)
    for j in tl.static_range(K):
        w = _weight(weight_ptr, d, j, C)
        p += w * _input(x_ptr, window_ptr, x_time, first, i - (K - 1) + j, d, length, C, K - 1)
    return p


@triton.jit(do_not_specialize=["T"])
def _forward(
    x_ptr, window_ptr, weight_ptr, length_ptr, y_ptr, x_row, x_time, T, C,
    K: tl.constexpr, SILU: tl.constexpr, L: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    b, first = tl.program_id(2).to(tl.int64), tl.program_id(1) * L
    i, d = tl.arange(0, L), tl.program_id(0) * D + tl.arange(0, D)
    length = tl.load(length_ptr + b).to(tl.int32)
    x_ptr += b * x_row + first.to(tl.int64) * x_time
    window_ptr += b * (K - 1) * C
    p = _summed(x_ptr, window_ptr, weight_ptr, x_time, first, i, d, length, C, K, L, D)
    if SILU:
        p = p * tl.sigmoid(p)
    p = tl.where((first + i < length)[:, None], p, 0.0)
    y_ptr += (b * T + first) * C
    tl.store(y_ptr + i[:, None] * C + d[None, :], p, mask=(first + i < T)[:, None] & (d < C)[None, :])


@triton.jit(do_not_specialize=["T"])
def _to_sums(
    x_ptr, window_ptr, weight_ptr, length_ptr, dy_ptr, dp_ptr, x_row, x_time, T, C,
    K: tl.constexpr, L: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """dp, where there is a SiLU."""
    b, first = tl.program_id(2).to(tl.int64), tl.program_id(1) * L
    i, d = tl.arange(0, L), tl.program_id(0) * D + tl.arange(0, D)
    length = tl.load(length_ptr + b).to(tl.int32)
    x_ptr += b * x_row + first.to(tl.int64) * x_time
    window_ptr += b * (K - 1) * C
    held, at = (first + i < length)[:, None] & (d < C)[None, :], i[:, None] * C + d[None, :]
    dp = tl.load(dy_ptr + (b * T + first) * C + at, mask=held, other=0.0).to(tl.float32)
    p = _summed(x_ptr, window_ptr, weight_ptr, x_time, first, i, d, length, C, K, L, D)
    share = tl.sigmoid(p)
    tl.store(dp_ptr + (b * T + first) * C + at, dp * share * (1.0 + p * (1.0 - share)), mask=held)


@triton.jit(do_not_specialize=["T"])
def _to_inputs(
    x_ptr, window_ptr, weight_ptr, length_ptr, dp_ptr, dx_ptr, dwindow_ptr, dweight_ptr, x_row, x_time, T, C,
    K: tl.constexpr, KP: tl.constexpr, TILES: tl.constexpr, L: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """dx, the window's, and this program's part of dw: several tiles, from the first time step of the window on."""
    b = tl.program_id(2).to(tl.int64)
    i, d, tap = tl.arange(0, L), tl.program_id(0) * D + tl.arange(0, D), tl.arange(0, KP)[:, None]
    inside = (d < C)[None, :]
    length = tl.load(length_ptr + b).to(tl.int32)
    dweight = tl.zeros([KP, D], tl.float32)
    for number in range(TILES):
        first = (tl.program_id(1) * TILES + number) * L - (K - 1)
        s, here = first + i, (b * T + first) * C
        from_first = x_ptr + b * x_row + first.to(tl.int64) * x_time
        x = _input(from_first, window_ptr + b * (K - 1) * C, x_time, first, i, d, length, C, K - 1)
        dx = tl.zeros([L, D], tl.float32)
        for j in tl.static_range(K):
            later = i + (K - 1) - j
            held = ((first + later >= 0) & (first + later < length))[:, None] & inside
            dp = tl.load(dp_ptr + here + later[:, None] * C + d[None, :], mask=held, other=0.0).to(tl.float32)
            dx += _weight(weight_ptr, d, j, C) * dp
            dweight += tl.where(tap == j, tl.sum(dp * x, 0)[None, :], 0.0)
        dx = tl.where((s < length)[:, None], dx, 0.0)
        tl.store(dx_ptr + here + i[:, None] * C + d[None, :], dx, mask=((s >= 0) & (s < T))[:, None] & inside)
        if first < 0:
            at_window = b * (K - 1) * C + (s + K - 1)[:, None] * C + d[None, :]
            tl.store(dwindow_ptr + at_window, dx, mask=(s < 0)[:, None] & inside)
    part = b * tl.num_programs(1) + tl.program_id(1)
    tl.store(dweight_ptr + (part * K + tap) * C + d[None, :], dweight, mask=(tap < K) & inside)


def _grid(channels: int, time: int, batch: int, tile: Tile) -> tuple[int, int, int]:
    return triton.cdiv(channels, tile.channels), triton.cdiv(time, tile.steps * tile.tiles), batch


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, window: Tensor, weight: Tensor, length_B: Tensor, silu: bool) -> Tensor:
        batch, time, channels = x.shape
        y, strides = x.new_empty(x.shape), (*x.stride()[:2], time, channels)
        _forward[_grid(channels, time, batch, _TILE)](
            x, window, weight.mT.contiguous(), length_B, y, *strides, SILU=silu, **_TILE.sizes(weight.shape[1]), **FUSED
        )
        ctx.save_for_backward(x, window, weight, length_B)
        ctx.silu = silu
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, window, weight, length_B = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this again: the other form can
            inputs = (x, window, weight)
            again, _ = naive.short_convolution(*inputs, length_B, ctx.silu)
            return *through((again,), inputs, gradients), None, None
        batch, time, channels = x.shape
        taps, strides = weight.shape[1], (*x.stride()[:2], time, channels)
        weight_KC = weight.mT.contiguous()
        dp = dy = gradients[0].contiguous()
        if ctx.silu:
            dp, grid = torch.empty_like(dy), _grid(channels, time, batch, _TILE)
            _to_sums[grid](x, window, weight_KC, length_B, dy, dp, *strides, **_TILE.sizes(taps), **FUSED)
        grid = _grid(channels, time + taps - 1, batch, _SUMMED)
        dx, dwindow = x.new_empty(x.shape), torch.empty_like(window)
        dweight = torch.empty(batch * grid[1], taps, channels, dtype=torch.float32, device=x.device)
        _to_inputs[grid](
            x, window, weight_KC, length_B, dp, dx, dwindow, dweight, *strides,
            KP=triton.next_power_of_2(taps), TILES=_SUMMED.tiles, **_SUMMED.sizes(taps), **FUSED,
        )  # fmt: skip
        return dx, dwindow, dweight.sum(0).mT.to(weight), None, None


def short_convolution(
    x_BTC: Tensor, window_BWC: Tensor, weight_CK: Tensor, lengths_B: Tensor | None, silu: bool
) -> tuple[Tensor, Tensor]:
    """`naive.short_convolution`; all sums in float32."""
    (x_BTC,) = dense(x_BTC)
    remembered, length_B = window_BWC.shape[1], row_lengths(x_BTC, lengths_B)
    y_BTC: Tensor = _Convolution.apply(x_BTC, window_BWC.contiguous(), weight_CK, length_B, silu)
    before_BWC = window_BWC.to(x_BTC)
    if lengths_B is None:
        latest_BWC = x_BTC[:, max(0, x_BTC.shape[1] - remembered) :]
        return y_BTC, torch.cat([before_BWC, latest_BWC], dim=1)[:, latest_BWC.shape[1] :]
    at_BWC = (length_B[:, None] + torch.arange(remembered, device=x_BTC.device))[..., None].expand_as(before_BWC)
    older_BWC = before_BWC.gather(1, at_BWC.clamp(max=remembered - 1))
    newer_BWC = x_BTC.gather(1, (at_BWC - remembered).clamp(min=0))
    return y_BTC, torch.where(at_BWC < remembered, older_BWC, newer_BWC)

"""One more token of each row on a GPU: its key and value written into the list, its queries answered, by one kernel.

A program takes one head of one row. It begins with the new key, which it has at hand, and goes through the slots in
use, however many there is room for, with the sums of a softmax that is rescaled whenever a larger score comes. Long
lists are cut into parts, for as many programs, and a second kernel puts the parts together. How many parts there are
depends on shapes alone, so the order of all sums does not depend on chance.

B batch, S slots, H heads of queries, G heads of keys and values, K width of a head, P parts.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from statewise.kernels.with_triton import FUSED, dependent_launch

_HELD = 1024  # numbers of a tile of keys, for one warp; where programs are few, for four of them, and more each
_FEW = 512
_WARP = 2048  # numbers of a tile that the registers of a warp have room for
_PART = 256  # slots that a program takes, where there are more than programs enough to fill the GPU
_MOST_PARTS, _ENOUGH = 32, 1056


@triton.jit(do_not_specialize=["S", "scale"])
def _attend(
    q_ptr, k_ptr, v_ptr, keys_ptr, values_ptr, length_ptr, slopes_ptr, y_ptr, after_ptr, sums_ptr, S, scale,
    q_row, k_row, v_row, keys_row, keys_slot, keys_head, values_row, values_slot, values_head,
    H: tl.constexpr, SHARED: tl.constexpr, K: tl.constexpr, PARTS: tl.constexpr, SLOPED: tl.constexpr,
    EARLY: tl.constexpr, UNITS: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    b, h, part = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H, tl.program_id(1)
    g = h // SHARED
    u = tl.arange(0, UNITS)
    real = u < K
    length = tl.load(length_ptr + b)
    q = tl.load(q_ptr + b * q_row + h * K + u, mask=real, other=0.0).to(tl.float32) * scale
    keys = keys_ptr + b * keys_row + g * keys_head
    values = values_ptr + b * values_row + g * values_head

    # The newest is the first part's, and the first of the heads that share it writes it down.
    k = tl.load(k_ptr + b * k_row + g * K + u, mask=real, other=0.0)
    v = tl.load(v_ptr + b * v_row + g * K + u, mask=real, other=0.0)
    ours = real & (length < S) & (part == 0) & (h % SHARED == 0)
    tl.store(keys + length * keys_slot + u, k.to(keys_ptr.dtype.element_ty), mask=ours)
    tl.store(values + length * values_slot + u, v.to(values_ptr.dtype.element_ty), mask=ours)
    tl.store(after_ptr + b, length + 1, mask=(part == 0) & (h == 0))
    best = tl.where(part == 0, tl.sum(q * k.to(tl.float32), 0), -float("inf"))
    total = tl.where(part == 0, 1.0, 0.0)
    y = tl.where(part == 0, v.to(tl.float32), 0.0)

    share = tl.cdiv(tl.cdiv(length, PARTS), SLOTS) * SLOTS
    begin = part * share
    end = tl.minimum(begin + share, length)
    for first in tl.range(begin, end, SLOTS, num_stages=3):  # read ahead
        s = first + tl.arange(0, SLOTS)
        inside = (s < end)[:, None] & real[None, :]
        key = tl.load(keys + s[:, None] * keys_slot + u[None, :], mask=inside, other=0.0).to(tl.float32)
        value = tl.load(values + s[:, None] * values_slot + u[None, :], mask=inside, other=0.0).to(tl.float32)
        score = tl.sum(key * q[None, :], 1)
        if SLOPED:
            score -= tl.load(slopes_ptr + h).to(tl.float32) * (length - s).to(tl.float32)
        score = tl.where(s < end, score, -float("inf"))
        largest = tl.maximum(best, tl.max(score, 0))
        weight = tl.exp(score - largest)
        shrink = tl.exp(best - largest)
        total = total * shrink + tl.sum(weight, 0)
        y = y * shrink + tl.sum(weight[:, None] * value, 0)
        best = largest

    if PARTS == 1:
        tl.store(y_ptr + (b * H + h) * K + u, (y / total).to(y_ptr.dtype.element_ty), mask=real)
    else:
        sums = sums_ptr + ((b * H + h) * PARTS + part) * (K + 2)
        tl.store(sums + u, y, mask=real)
        tl.store(sums + K, best)
        tl.store(sums + K + 1, total)


@triton.jit
def _join(
    sums_ptr,
    y_ptr,
    K: tl.constexpr,
    PARTS: tl.constexpr,
    UNITS: tl.constexpr,
    PADDED: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    n = tl.program_id(0).to(tl.int64)
    u, p = tl.arange(0, UNITS), tl.arange(0, PADDED)
    sums = sums_ptr + (n * PARTS + p) * (K + 2)
    best = tl.load(sums + K, mask=p < PARTS, other=-float("inf"))
    weight = tl.exp(best - tl.max(best, 0))
    total = tl.sum(weight * tl.load(sums + K + 1, mask=p < PARTS, other=0.0), 0)
    inside = (p < PARTS)[:, None] & (u < K)[None, :]
    y = tl.sum(weight[:, None] * tl.load(sums[:, None] + u[None, :], mask=inside, other=0.0), 0) / total
    tl.store(y_ptr + n * K + u, y.to(y_ptr.dtype.element_ty), mask=u < K)


def parts_of(slots: int, *, programs: int) -> int:
    """Of a list with so much room, where each part of it has so many programs: one for each head and row."""
    return max(1, min(_MOST_PARTS, -(-slots // _PART), _ENOUGH // programs))


def attend_(
    q_BHK: Tensor,
    k_BGK: Tensor,
    v_BGK: Tensor,
    keys_BSGK: Tensor,
    values_BSGK: Tensor,
    length_B: Tensor,
    slopes_H: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    (batch, heads, width), slots = q_BHK.shape, keys_BSGK.shape[1]
    assert keys_BSGK.stride(-1) == values_BSGK.stride(-1) == 1
    q_BHK, k_BGK, v_BGK = (_heads_together(part) for part in (q_BHK, k_BGK, v_BGK))
    units, parts = triton.next_power_of_2(width), parts_of(slots, programs=batch * heads)
    y_BHK = torch.empty(q_BHK.shape, dtype=q_BHK.dtype, device=q_BHK.device)
    after_B = torch.empty_like(length_B)
    sums_BHPK = y_BHK
    if parts > 1:
        sums_BHPK = torch.empty(batch, heads, parts, width + 2, dtype=torch.float32, device=q_BHK.device)
    _attend[(batch * heads, parts)](
        q_BHK, k_BGK, v_BGK, keys_BSGK, values_BSGK, length_B, y_BHK if slopes_H is None else slopes_H,
        y_BHK, after_B, sums_BHPK, slots, scale,
        q_BHK.stride(0), k_BGK.stride(0), v_BGK.stride(0), *keys_BSGK.stride()[:3], *values_BSGK.stride()[:3],
        H=heads, SHARED=heads // k_BGK.shape[1], K=width, PARTS=parts, SLOPED=slopes_H is not None,
        UNITS=units, **_tile(units, programs=batch * heads * parts), **dependent_launch(q_BHK), **FUSED,
    )  # fmt: skip
    if parts > 1:
        padded = triton.next_power_of_2(parts)
        _join[(batch * heads,)](
            sums_BHPK, y_BHK, K=width, PARTS=parts, UNITS=units, PADDED=padded, **dependent_launch(q_BHK), **FUSED
        )
    return y_BHK, after_B


def _tile(units: int, *, programs: int) -> dict[str, int]:
    """How many slots at a time, and how many warps: the fastest of those tried on an H200."""
    held, warps = (_HELD, 1) if programs >= _FEW else (8 * _HELD, 4)
    slots = max(16, held // units)
    return {"SLOTS": slots, "num_warps": max(warps, slots * units // _WARP)}


def _heads_together(a_BHK: Tensor) -> Tensor:
    """Row by row, the heads of a row behind each other: a part of a stacked product is that already."""
    lies = a_BHK.stride(2) == 1 and a_BHK.stride(1) == a_BHK.shape[2]
    return a_BHK if lies else a_BHK.contiguous()

"""A matrix times a few vectors on a GPU. Its time is that of reading the matrix, so each program reads some rows of it
once, for all vectors: as sums of products for one vector, by the units for products for more. Sums are float32.

B rows, I input width, O output width.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from statewise.kernels.gpu import gpu_of
from statewise.kernels.with_triton import FUSED, dependent_launch

_LINE = tl.constexpr(128)  # bytes that memory brings into the cache at once


@triton.jit
def _into_cache(pointers):
    """A hint and no read: nothing depends on it, and it may come before what lies there is written."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [pointers.to(tl.int64)], tl.int32, is_pure=False, pack=1
    )


@triton.jit
def _activated(y, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        y = tl.maximum(y, 0.0)
    if ACTIVATION == "gelu":  # tanh(a) = 2 σ(2a) - 1
        y = y * tl.sigmoid(1.5957691216057308 * (y + 0.044715 * y * y * y))
    return y


@triton.jit(do_not_specialize=["outputs"])
def _vector(
    x_ptr, weight_ptr, bias_ptr, onto_ptr, y_ptr, outputs, inputs,
    BIASED: tl.constexpr, ACTIVATION: tl.constexpr, ONTO: tl.constexpr, EARLY: tl.constexpr,
    OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    o = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    i = tl.arange(0, INPUTS)
    weight = weight_ptr + o.to(tl.int64)[:, None] * inputs
    part = tl.load(weight + i[None, :], mask=(o < outputs)[:, None] & (i < inputs)[None, :], other=0.0)
    if BIASED:
        bias = tl.load(bias_ptr + o, mask=o < outputs, other=0.0).to(tl.float32)
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    x = tl.load(x_ptr + i, mask=i < inputs, other=0.0).to(tl.float32)
    if ONTO:
        onto = tl.load(onto_ptr + o, mask=o < outputs, other=0.0).to(tl.float32)
    total = part.to(tl.float32) * x[None, :]
    for first in range(INPUTS, inputs, INPUTS):
        i = first + tl.arange(0, INPUTS)
        x = tl.load(x_ptr + i, mask=i < inputs, other=0.0).to(tl.float32)
        part = tl.load(weight + i[None, :], mask=(o < outputs)[:, None] & (i < inputs)[None, :], other=0.0)
        total += part.to(tl.float32) * x[None, :]
    y = tl.sum(total, 1)
    if BIASED:
        y += bias
    y = _activated(y, ACTIVATION)
    if ONTO:
        y += onto
    tl.store(y_ptr + o, y.to(y_ptr.dtype.element_ty), mask=o < outputs)


@triton.jit(do_not_specialize=["B", "outputs"])
def _rows(
    x_ptr, weight_ptr, bias_ptr, onto_ptr, y_ptr, B, outputs, inputs,
    BIASED: tl.constexpr, ACTIVATION: tl.constexpr, ONTO: tl.constexpr, EARLY: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, LINES: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    o = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    inside = (b < B)[:, None] & (o < outputs)[None, :]
    at = b.to(tl.int64)[:, None] * outputs + o[None, :]
    if BIASED:
        bias = tl.load(bias_ptr + o, mask=o < outputs, other=0.0).to(tl.float32)
    if EARLY:
        if LINES > 0:  # of each row of the matrix; what would lie beyond falls on the last
            line = tl.minimum(tl.arange(0, LINES) * (_LINE // 2), inputs - 1)
            _into_cache(weight_ptr + tl.minimum(o, outputs - 1).to(tl.int64)[:, None] * inputs + line[None, :])
        gdc_launch_dependents()
        gdc_wait()
    if ONTO:
        onto = tl.load(onto_ptr + at, mask=inside, other=0.0).to(tl.float32)
    weight = weight_ptr + o.to(tl.int64)[:, None] * inputs
    total = tl.zeros([ROWS, OUTPUTS], tl.float32)
    for first in range(0, inputs, INPUTS):
        i = first + tl.arange(0, INPUTS)
        x = tl.load(x_ptr + b[:, None] * inputs + i[None, :], mask=(b < B)[:, None] & (i < inputs)[None, :], other=0.0)
        part = tl.load(weight + i[None, :], mask=(o < outputs)[:, None] & (i < inputs)[None, :], other=0.0)
        total = tl.dot(x, tl.trans(part), total)
    if BIASED:
        total += bias[None, :]
    total = _activated(total, ACTIVATION)
    if ONTO:
        total += onto
    tl.store(y_ptr + at, total.to(y_ptr.dtype.element_ty), mask=inside)


_MOST_LINES = 64  # of a row, that are asked for before the wait
_ROOMY = 160 * 1024  # bytes of shared memory
_MANY = 2**14  # outputs, such as the tokens of a vocabulary, of which a program takes more


def tile_of(rows: int, outputs: int, inputs: int, *, roomy: bool) -> dict[str, int]:
    """How a program cuts the matrix, and how many warps share it: the fastest of those tried on an H200.

    They were tried inside a step of GPT-2's shape, where kernels begin early: what is fastest alone is not fastest
    there. `roomy`: the GPU has enough shared memory to read far ahead.
    """
    many = outputs >= _MANY
    if rows == 1:
        cut = (16, 256) if many else (4, 1024) if inputs <= 1024 else (2, 4096)
        return {"OUTPUTS": cut[0], "INPUTS": cut[1], "num_warps": 4, "num_stages": 2}
    padded = max(16, min(64, triton.next_power_of_2(rows)))
    if padded == 64 and many:
        return {"ROWS": padded, "OUTPUTS": 32, "INPUTS": 64, "num_warps": 4, "num_stages": 5, "LINES": 0}
    lines = 0 if many else min(_MOST_LINES, triton.next_power_of_2(triton.cdiv(2 * inputs, _LINE.value)))
    shape = {"ROWS": padded, "OUTPUTS": 32 if outputs > 1024 else 16, "INPUTS": 128, "LINES": lines}
    return {**shape, "num_warps": 4, "num_stages": 6 if padded == 64 and roomy else 4}


def product(
    x_BI: Tensor,
    weight_OI: Tensor,
    bias_O: Tensor | None,
    activation: str = "none",
    onto_BO: Tensor | None = None,
    *,
    tile: dict[str, int] | None = None,
) -> Tensor:
    x_BI = x_BI.contiguous()
    (rows, inputs), outputs = x_BI.shape, len(weight_OI)
    roomy = x_BI.is_cuda and gpu_of(x_BI.device.index or 0).shared_bytes >= _ROOMY
    tile = tile or tile_of(rows, outputs, inputs, roomy=roomy)
    y_BO = torch.empty(rows, outputs, dtype=x_BI.dtype, device=x_BI.device)
    # What is not there is not read; any address will do.
    bias = weight_OI if bias_O is None else bias_O
    onto = weight_OI if onto_BO is None else onto_BO.contiguous()
    finish = {
        "BIASED": bias_O is not None,
        "ACTIVATION": activation,
        "ONTO": onto_BO is not None,
        **dependent_launch(x_BI),
    }
    across = triton.cdiv(outputs, tile["OUTPUTS"])
    if rows == 1:
        _vector[(across,)](x_BI, weight_OI, bias, onto, y_BO, outputs, inputs, **finish, **tile, **FUSED)
    else:
        down = triton.cdiv(rows, tile["ROWS"])
        _rows[(across, down)](x_BI, weight_OI, bias, onto, y_BO, rows, outputs, inputs, **finish, **tile, **FUSED)
    return y_BO

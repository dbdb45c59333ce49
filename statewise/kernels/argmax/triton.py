"""The index of the largest number of each row, on a GPU: some programs per row, and one that compares their results.

B rows, V numbers of a row, P parts.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from statewise.kernels.with_triton import FUSED, dependent_launch

_PART = 2048  # numbers that a program takes


@triton.jit(do_not_specialize=["V", "P"])
def _of_parts(x_ptr, best_ptr, at_ptr, V, P, EARLY: tl.constexpr, PART: tl.constexpr):
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    b, p = tl.program_id(0).to(tl.int64), tl.program_id(1)
    v = p * PART + tl.arange(0, PART)
    x = tl.load(x_ptr + b * V + v, mask=v < V, other=-float("inf")).to(tl.float32)
    x = tl.where(x != x, float("inf"), x)
    best, at = tl.max(x, 0, return_indices=True)
    tl.store(best_ptr + b * P + p, best)
    tl.store(at_ptr + b * P + p, p * PART + at)


@triton.jit(do_not_specialize=["P"])
def _of_all(best_ptr, at_ptr, y_ptr, P, EARLY: tl.constexpr, PADDED: tl.constexpr):
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    b, p = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    best = tl.load(best_ptr + b * P + p, mask=p < P, other=-float("inf"))
    _, part = tl.max(best, 0, return_indices=True)
    tl.store(y_ptr + b, tl.load(at_ptr + b * P + part).to(tl.int64))


def argmax(x_BV: Tensor) -> Tensor:
    rows, numbers = x_BV.shape
    parts = triton.cdiv(numbers, _PART)
    best_BP = torch.empty(rows, parts, dtype=torch.float32, device=x_BV.device)
    at_BP = torch.empty(rows, parts, dtype=torch.int32, device=x_BV.device)
    y_B = torch.empty(rows, dtype=torch.int64, device=x_BV.device)
    options = dependent_launch(x_BV)
    _of_parts[(rows, parts)](x_BV, best_BP, at_BP, numbers, parts, PART=_PART, **options, **FUSED)
    _of_all[(rows,)](best_BP, at_BP, y_B, parts, PADDED=triton.next_power_of_2(parts), **options, **FUSED)
    return y_B

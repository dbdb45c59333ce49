"""Recurrences that stay on the chip for a whole sequence: U in registers and shared memory, states from block to block.

CUDA C++ for NVIDIA GPUs since Ampere, compiled when first used. `README.md` of `kernels` says how the kernels work,
`table.py` which of them takes which shape.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from statewise.core import tool, uncompiled
from statewise.kernels.choice import Implementation, takes_unproven
from statewise.kernels.gpu import Gpu, gpu_of
from statewise.kernels.persistent.compiler import Unavailable as Unavailable
from statewise.kernels.persistent.driver import Kernel, kernel
from statewise.kernels.persistent.plan import Cell
from statewise.kernels.persistent.recurrence import Tensors as Tensors
from statewise.kernels.persistent.recurrence import recur
from statewise.kernels.persistent.recurrence import remember as remember
from statewise.kernels.persistent.stall import KernelStalled as KernelStalled
from statewise.kernels.persistent.stall import raise_if_stalled as raise_if_stalled
from statewise.kernels.persistent.stall import retire as retire
from statewise.kernels.persistent.stall import retired as retired
from statewise.kernels.persistent.table import forward_alone, plans

_SINCE = (8, 0)  # mma on bfloat16, and loads and stores with a scope


def compute_dtype(weight: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else weight.dtype


def obstacle(cell: Cell, *, width: int, batch: int, weight: Tensor) -> str | None:
    """Why the kernels cannot or should not take this call; None when they can and are the fastest."""
    if weight.device.type != "cuda":
        return "it needs a GPU"
    if reader := tool():
        return f"{reader} cannot look into it"
    if retired() is not None:
        return retired()
    device = weight.device.index or 0
    return _obstacle(cell, width, batch, compute_dtype(weight), device, gpu_of(device))


@cache
def _obstacle(cell: Cell, width: int, batch: int, dtype: torch.dtype, device: int, gpu: Gpu) -> str | None:
    if dtype not in (torch.bfloat16, torch.float16):
        return f"it computes in bfloat16 or float16, not in {str(dtype).removeprefix('torch.')}"
    if gpu.capability < _SINCE:
        return "it needs compute capability {}.{}, this GPU has {}".format(*_SINCE, gpu.name)
    pair = plans(cell, width=width, batch=batch, gpu=gpu)
    if pair is None:
        known = "it has no plan" if gpu.measured else f"on a GPU of {gpu.name} it is not sure to be ahead of cuDNN"
        return f"{known} at width {width} and batch {batch}"
    try:
        for plan in pair:
            if not kernel(plan, half=dtype == torch.float16, device=device).fits(batch):
                return f"this GPU has no room for all blocks at width {width} and batch {batch}"
    except Unavailable as reason:
        return str(reason)
    return None


def with_persistent(
    others: list[Implementation], cell: Cell, weight: Tensor, *, batch: int, variant: str | None = None
) -> tuple[list[Implementation], dict[Implementation, str]]:
    """The fast forms of a cell, these kernels among them where they can run, or why they cannot (on a GPU, that is).

    `variant` names what the call has beyond the plain cell. On a GPU that nobody measured they stand last in float16,
    and so run only where they are asked for: there cuDNN has kernels of this kind too.
    """
    if weight.device.type != "cuda":
        return others, {}
    reason = variant or obstacle(cell, width=weight.shape[1], batch=batch, weight=weight)
    if reason is not None:
        return others, {"persistent": reason}
    ahead = compute_dtype(weight) == torch.bfloat16 or gpu_of(weight.device.index or 0).measured or takes_unproven()
    return ["persistent", *others] if ahead else [*others, "persistent"], {}


@cache
def loaded(cell: Cell, width: int, batch: int, half: bool, device: int, gpu: Gpu) -> tuple[Kernel, Kernel]:
    """Forward and backward, where `obstacle` has none."""
    pair = plans(cell, width=width, batch=batch, gpu=gpu)
    assert pair is not None
    forward, backward = (kernel(plan, half=half, device=device) for plan in pair)
    return forward, backward


def forward_kernel(cell: Cell, *, batch: int, weight: Tensor) -> Kernel | None:
    """For a forward whose backward is another form's, where that is the fastest."""
    device, dtype = weight.device.index or 0, compute_dtype(weight)
    if weight.device.type != "cuda" or retired() is not None or dtype not in (torch.bfloat16, torch.float16):
        return None
    return _forward_kernel(cell, weight.shape[1], batch, dtype == torch.float16, device, gpu_of(device))


@cache
def _forward_kernel(cell: Cell, width: int, batch: int, half: bool, device: int, gpu: Gpu) -> Kernel | None:
    plan = forward_alone(cell, width=width, batch=batch, gpu=gpu)
    try:
        made = None if plan is None else kernel(plan, half=half, device=device)
    except Unavailable:
        return None
    return made if made is not None and made.fits(batch) else None


@uncompiled
def run(
    cell: Cell, tensors: Tensors, lengths_B: Tensor | None, equation: Callable[[Tensors], tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """`obstacle` has been asked before. Outputs [B, T, D] and the last state; the equation serves second gradients.

    A launch that is refused after all, as when another process holds part of the GPU, is `Unavailable`: whoever calls
    takes another form, and so will the choice from then on.
    """
    (batch, time, _), weight, device = tensors.x_BTI.shape, tensors.u_GD, tensors.x_BTI.device
    dtype, place = compute_dtype(weight), device.index or 0
    if lengths_B is not None:
        lengths_B = lengths_B.clamp(min=0, max=time).to(device, torch.int32)
    try:
        kernels = loaded(cell, weight.shape[1], batch, dtype == torch.float16, place, gpu_of(place))
        return recur(cell, kernels, dtype, tensors, lengths_B, equation)
    except Unavailable as reason:
        retire(str(reason))
        raise

"""Recurrences as one product and one kernel a step, many steps a launch: for what does not stay on the gpu.

Where a product a step is large, or a cell has no kernel for the whole sequence (layer norm), cuBLAS multiplies and one
small kernel does all the rest of a step. CUDA graphs spare the host the launches. Runs on any NVIDIA GPU since Turing,
in bfloat16, float16 and float32; `README.md` of `kernels` says how.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from statewise.core import tool, uncompiled
from statewise.kernels.choice import Implementation, Wish, is_asked, takes_unproven
from statewise.kernels.gpu import gpu_of
from statewise.kernels.persistent import compute_dtype, forward_kernel, retire
from statewise.kernels.persistent.compiler import Unavailable as Unavailable
from statewise.kernels.persistent.plan import Cell, Direction
from statewise.kernels.stepped.program import Program, Shape, load
from statewise.kernels.stepped.recurrence import Tensors as Tensors
from statewise.kernels.stepped.recurrence import Work, recur

_CAPABILITY = (7, 5)
_DIRECTIONS: tuple[Direction, Direction] = ("forward", "backward")

_retired: list[str] = []


def retired() -> str | None:
    return _retired[0] if _retired else None


def obstacle(cell: Cell, *, width: int, batch: int, weight: Tensor, normed: bool = False) -> str | None:
    """Why this form cannot take the call."""
    if weight.device.type != "cuda":
        return "it needs a GPU"
    if reader := tool():
        return f"{reader} cannot look into it"
    if retired() is not None:
        return retired()
    return _obstacle(
        Shape.holding(batch, cell, "forward", width, compute_dtype(weight), normed=normed), weight.device.index or 0
    )


@cache
def _obstacle(shape: Shape, device: int) -> str | None:
    if shape.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        return f"it computes in bfloat16, float16 or float32, not in {str(shape.dtype).removeprefix('torch.')}"
    capability = torch.cuda.get_device_capability(device)
    if capability < _CAPABILITY:
        return "it needs compute capability {}.{}, this GPU has {}.{}".format(*_CAPABILITY, *capability)
    try:
        for direction in _DIRECTIONS:
            load(Program.of(shape._replace(direction=direction)), device)
    except Unavailable as reason:
        return str(reason)
    return None


def ahead(cell: Cell, weight: Tensor, *, width: int, batch: int) -> bool:
    """Whether it is known to be faster than cuDNN, or, where unproven forms are taken, expected to be.

    In bfloat16 cuDNN launches several kernels a step at every shape, in float16 where batch or width are too much for
    its own persistent kernels, in float32 but for narrow Elman layers.
    """
    dtype, gated = compute_dtype(weight), cell in ("gru", "lstm")
    if takes_unproven() and dtype != torch.float32:
        return dtype == torch.bfloat16 or (dtype == torch.float16 and (batch > 64 or width > 1024))
    if not gpu_of(weight.device.index or 0).measured:
        return False
    if dtype == torch.float32:
        return one_precision() and (width >= 256 if gated else width >= 1024 and batch >= 16)
    if forward_kernel(cell, batch=batch, weight=weight) is not None:
        return True
    least = (1024 if batch >= 256 else 2048) if gated else 2048
    return dtype == torch.bfloat16 and width >= least and batch >= (64 if gated else 256)


def one_precision() -> bool:
    """Whether products of float32 are rounded alike here and in cuDNN's recurrent layers.

    As PyTorch comes, cuDNN rounds to TF32 and products do not: who asks for neither has chosen the faster.
    """
    rnn = torch.backends.cudnn.rnn.fp32_precision  # type: ignore[attr-defined]  # its stub has not got it
    return bool((torch.backends.cuda.matmul.fp32_precision == "tf32") == (rnn == "tf32"))


def with_stepped(
    others: list[Implementation],
    absent: dict[Implementation, str],
    cell: Cell,
    weight: Tensor,
    *,
    batch: int,
    wish: Wish = "auto",
    variant: str | None = None,
) -> tuple[list[Implementation], dict[Implementation, str]]:
    """The fast forms of a cell, this one among them where it can run: before cuDNN where it is faster, else last."""
    if weight.device.type != "cuda":
        return others, absent
    width = weight.shape[1]
    first = "persistent" not in others[:1] and ahead(cell, weight, width=width, batch=batch)
    if variant is None and not first and not is_asked(wish):
        return [*others, "stepped"], absent  # nobody will call it: nothing is compiled to find out whether one could
    reason = variant or obstacle(cell, width=width, batch=batch, weight=weight)
    if reason is not None:
        return others, {**absent, "stepped": reason}
    return ["stepped", *others] if first else [*others, "stepped"], absent


@uncompiled
def run(
    cell: Cell, tensors: Tensors, lengths_B: Tensor | None, equation: Callable[[Tensors], tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """`obstacle` has been asked before. Outputs [B, T, D] and the last state; the equation serves second gradients.

    A launch that is refused after all is `Unavailable`: whoever calls takes another form, and so will the choice.
    """
    if lengths_B is not None:
        lengths_B = lengths_B.clamp(min=0, max=tensors.x_BTI.shape[1]).to(tensors.x_BTI.device, torch.int32)
    whole = None
    if tensors.recurrent_G is None:
        whole = forward_kernel(cell, batch=len(tensors.x_BTI), weight=tensors.u_GD)
    work = Work(cell, compute_dtype(tensors.u_GD), lengths_B, equation, whole)
    if whole is not None:
        try:
            return recur(work, tensors)
        except Unavailable as reason:  # of that kernel: a product a step may still do
            retire(str(reason))
    try:
        return recur(work._replace(whole=None), tensors)
    except Unavailable as reason:
        _retired.append(str(reason))
        raise

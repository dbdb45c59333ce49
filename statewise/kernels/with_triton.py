"""Kernels in Triton: whether they can run here, and the module of an op once they do.

Triton comes with PyTorch for CUDA and is no dependency of this package: nothing imports it until a CUDA tensor asks.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from statewise.core import tool
from statewise.kernels.choice import Implementation

# Said at every launch, because Triton's own default will change: a product and the sum behind it are rounded once.
FUSED = {"enable_fp_fusion": True}
_OLDEST = (8, 0)  # the first GPUs whose units for products take float32, rounded to 19 bits


def with_triton(
    others: Sequence[Implementation], like: Tensor, *, variant: str | None = None
) -> tuple[Sequence[Implementation], dict[Implementation, str]]:
    """What `choose` asks for: the fast forms, and why Triton's is not among them. `variant` is what it cannot do."""
    reason = obstacle(like) or variant
    if reason is not None:
        return others, {"triton": reason}
    return ["triton", *others], {}


def obstacle(like: Tensor) -> str | None:
    """Why Triton's kernels cannot take a call on this tensor's device, in its dtype; None when they can."""
    if like.device.type != "cuda":
        return "it needs a GPU"
    if like.dtype == torch.float64:
        return "it computes in float32"
    if reader := tool():
        return f"{reader} cannot look into it"
    return _missing(like.device.index or 0)


@cache
def _missing(device: int) -> str | None:
    capability = torch.cuda.get_device_capability(device)
    if capability < _OLDEST:
        return "it needs compute capability {}.{}, this GPU has {}.{}".format(*_OLDEST, *capability)
    return None if find_spec("triton") else "Triton is not installed"


def load(op: str, file: str = "triton") -> Any:
    """The module with the kernels of an op."""
    return import_module(f"statewise.kernels.{op}.{file}")

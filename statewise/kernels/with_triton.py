"""Kernels in Triton: whether they can run here, and the module of an op once they do.

Triton comes with PyTorch for CUDA and is not a dependency of this package: it is imported for CUDA tensors only.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from statewise.core import tool
from statewise.kernels.choice import Choice, Implementation, Wish, is_asked

# Set at every launch, because Triton's default will change: a product and the sum after it are rounded once.
FUSED = {"enable_fp_fusion": True}
_OLDEST = (8, 0)  # the first GPUs whose units for products take float32, rounded to 19 bits


def with_triton(
    others: Sequence[Implementation], like: Tensor, *, variant: str | None = None
) -> tuple[Sequence[Implementation], dict[Implementation, str]]:
    """For `choose`: the fast implementations, and why Triton's is not among them. `variant`: what it cannot do."""
    reason = obstacle(like) or variant
    if reason is not None:
        return others, {"triton": reason}
    return ["triton", *others], {}


def triton_or(
    other: Implementation, like: Tensor, why: str, *, variant: str | None = None, wish: Wish = "auto"
) -> Choice:
    """Of an op with one fast form: Triton's where it can run, for the reason `why`; else `other`.

    A request for another form concerns the products around such an op, so `other` runs. `variant` as in `with_triton`.
    """
    if is_asked(wish):
        return Choice(other, "a lens is open, or somebody asked for one kind of kernel")
    reason = obstacle(like) or variant
    return Choice("triton", why) if reason is None else Choice(other, f"not triton: {reason}")


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


DEPENDENT_LAUNCH_SINCE = (9, 0)  # compute capability


def dependent_launch(like: Tensor) -> dict[str, bool]:
    """Launch options of a kernel that may begin before the previous one ends (programmatic dependent launch).

    A decoding step is a chain of kernels of a few microseconds, and a good part of each is its start. A kernel with
    `EARLY` lets the next one begin at once, asks for its weights, and then waits for what the previous one wrote.
    """
    available = like.device.type == "cuda" and _has_dependent_launch(like.device.index or 0)
    return {"EARLY": True, "launch_pdl": True} if available else {"EARLY": False}


@cache
def _has_dependent_launch(device: int) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= DEPENDENT_LAUNCH_SINCE

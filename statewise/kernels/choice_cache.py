"""Cache of kernel choices, keyed by everything the choice depends on.

To find all reasons takes longer than a short layer runs on a CPU, or than a kernel takes to launch on a GPU. Errors are
not cached.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from statewise.core import tool
from statewise.kernels import persistent, stepped
from statewise.kernels.choice import Choice, Wish, note, outside
from statewise.kernels.gpu import gpu_of

_cache: dict[tuple[object, ...], Choice] = {}


def cached_choice(op: str, choose: Callable[[], Choice], weight: Tensor, variant: object, *, batch: int) -> Choice:
    """`choose()`, or its earlier result. `variant`: all else that the choice depends on."""
    if tool():  # what a compiler reads must not depend on what ran before
        return choose()
    device = weight.device
    key: tuple[object, ...] = (op, variant, device, outside())
    if device.type == "cuda":
        dtype, gpu = persistent.compute_dtype(weight), gpu_of(device.index or 0)
        alike = dtype is not torch.float32 or stepped.one_precision()
        key += (batch, weight.shape, dtype, alike, gpu, persistent.retired(), stepped.retired())
    choice = _cache.get(key)
    if choice is None:
        choice = _cache[key] = choose()
    else:
        note(op, choice)
    return choice


def traceable(wish: Wish, lengths_B: Tensor | None) -> Wish:
    """PyTorch's recurrences need the lengths of rows as numbers, which no tool that traces has: then the equation."""
    return "naive" if lengths_B is not None and tool() else wish

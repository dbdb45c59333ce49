"""What happens when a wait inside a kernel outlasts its bound: an error at the next call, never a hang.

The flag lies in host memory that the GPU can write, so looking at it costs neither a copy nor a synchronisation.
"""

import ctypes
from functools import cache

import torch
from torch import Tensor

from statewise.core import check_replays_with

PATIENCE_SECONDS = 10.0


class KernelStalled(RuntimeError):
    """Blocks of a recurrent kernel waited in vain for each other; what was computed since then is void."""


@cache
def _flag() -> Tensor:
    check_replays_with(raise_if_stalled)
    return torch.zeros(1, dtype=torch.int32, pin_memory=True)


@cache
def _value() -> ctypes.c_int:
    return ctypes.c_int.from_address(_flag().data_ptr())


@cache
def address() -> int:
    return _flag().data_ptr()


def raise_if_stalled(*, wait: bool = False) -> None:
    """Raises for any kernel that has finished; `wait=True` also waits for those still running."""
    if wait:
        torch.cuda.synchronize()
    if _value().value:
        _value().value = 0
        retire("a kernel stalled earlier in this process")
        raise KernelStalled(
            f"a persistent recurrent kernel waited over {PATIENCE_SECONDS:.0f} s for its own blocks, so results since "
            "the last check are void; further calls use cuDNN. Setting STATEWISE_KERNEL=fused avoids these kernels"
        )


_retired: list[str] = []


def retire(reason: str) -> None:
    """From now on the choice takes another implementation, and says this."""
    _retired.append(reason)


def retired() -> str | None:
    return _retired[0] if _retired else None

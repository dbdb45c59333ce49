"""cuDNN's attention left out where its plans take longer than they save.

cuDNN makes a plan for every new shape, which takes as long as thousands of calls. In a batch as long as its longest
row, in a prompt as long as its writer likes, almost every shape is new; PyTorch's other kernels take any. They are
slower by themselves, the more so the more queries there are: from some number on a plan pays.
`benchmarks/lengths.py` measures both.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

import torch
from torch import Tensor

PAYS_FROM = 1024  # queries
_HERE = nullcontext()

_is_allowed: Callable[[], bool] = torch.backends.cuda.cudnn_sdp_enabled
_OTHERS: tuple[Callable[[], bool], ...] = (
    torch.backends.cuda.flash_sdp_enabled,
    torch.backends.cuda.mem_efficient_sdp_enabled,
    torch.backends.cuda.math_sdp_enabled,
)


class _Unplanned:
    """PyTorch's switch is one for the whole process: whoever leaves last puts it back."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, True

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = _is_allowed()
                torch.backends.cuda.enable_cudnn_sdp(False)
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                torch.backends.cuda.enable_cudnn_sdp(self._before)


_unplanned = _Unplanned()


def unplanned(q_BHTK: Tensor) -> AbstractContextManager[None]:
    """Around a call of PyTorch's op with these queries."""
    if not q_BHTK.is_cuda or q_BHTK.shape[2] >= PAYS_FROM or torch.compiler.is_compiling() or _is_chosen():
        return _HERE
    return _unplanned


def _is_chosen() -> bool:
    """Whether somebody has said which kernels may run; then there may be no other."""
    return not all(is_allowed() for is_allowed in _OTHERS)

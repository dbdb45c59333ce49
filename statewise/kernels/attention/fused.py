"""Attention by PyTorch's own op, which never writes the scores to memory where the device has a kernel for it.

cuDNN's kernel is left out for few queries. cuDNN makes a plan for every new shape, which takes as long as thousands of
calls, and with batches and prompts of any length almost every shape is new. PyTorch's other kernels take any shape, but
are slower, the more so the more queries there are: from some number on a plan pays (`benchmarks/lengths.py`).

B batch, T queries, S slots, H heads of queries, G heads of keys and values, K width of a head.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.kernels.attention.naive import Mask, distance_bias, visible


def attention(q_BTHK: Tensor, k_BSGK: Tensor, v_BSGK: Tensor, mask: Mask, scale: float, dropout: float = 0.0) -> Tensor:
    triangle = mask.whole and mask.window is None and mask.slopes_H is None
    if triangle and not mask.causal and q_BTHK.shape[1] == 1 and dropout == 0:
        return one_step(q_BTHK[:, 0], k_BSGK, v_BSGK, scale)[:, None]
    q_BHTK, k_BGSK, v_BGSK = q_BTHK.transpose(1, 2), k_BSGK.transpose(1, 2), v_BSGK.transpose(1, 2)
    if triangle:
        y_BHTK = _op(q_BHTK, k_BGSK, v_BGSK, dropout_p=dropout, is_causal=mask.causal, scale=scale)
        return y_BHTK.transpose(1, 2)

    seen_B1TS = visible(mask)
    # Without a rule of order, a row whose list is empty leaves its queries blind: they see all, and get 0.
    blind_B1T1 = None if mask.causal else ~seen_B1TS.any(-1, keepdim=True)
    if blind_B1T1 is not None:
        seen_B1TS = seen_B1TS | blind_B1T1
    bias_BHTS = distance_bias(mask, q_BHTK)
    added = seen_B1TS if bias_BHTS is None else bias_BHTS.masked_fill(~seen_B1TS, -torch.inf)
    y_BHTK = _op(q_BHTK, k_BGSK, v_BGSK, attn_mask=added, dropout_p=dropout, scale=scale)
    if blind_B1T1 is not None:
        y_BHTK = y_BHTK.masked_fill(blind_B1T1, 0.0)
    return y_BHTK.transpose(1, 2)


def _op(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, **how: Any) -> Tensor:
    grouped = bool(q_BHTK.shape[1] != k_BGSK.shape[1])  # to torch.jit.trace a size is a tensor
    with without_cudnn(q_BHTK):
        return F.scaled_dot_product_attention(q_BHTK, k_BGSK, v_BGSK, enable_gqa=grouped, **how)


def one_step(q_BHK: Tensor, k_BSGK: Tensor, v_BSGK: Tensor, scale: float) -> Tensor:
    """The queries of one time step, which see all slots. A cache may be kept in another precision."""
    if k_BSGK.dtype != q_BHK.dtype:
        k_BSGK, v_BSGK = k_BSGK.to(q_BHK.dtype), v_BSGK.to(q_BHK.dtype)
    k_BGSK, v_BGSK = k_BSGK.transpose(1, 2), v_BSGK.transpose(1, 2)
    (batch, heads, _), groups = q_BHK.shape, k_BGSK.shape[1]
    if batch == 1 or q_BHK.device.type != "cpu":
        return _op(q_BHK.unsqueeze(2), k_BGSK, v_BGSK, scale=scale).squeeze(2)
    # On a CPU the op blocks by queries; many rows with one query each are two products, in half the time. The
    # queries of a group stand below each other, so that no key is repeated for them.
    q_BGRK = torch.unflatten(scale * q_BHK, 1, (groups, heads // groups))
    y_BGRK = torch.softmax(q_BGRK @ k_BGSK.mT, dim=-1) @ v_BGSK
    return y_BGRK.flatten(1, 2)


PAYS_FROM = 1024  # queries
_UNCHANGED = nullcontext()

_is_allowed: Callable[[], bool] = torch.backends.cuda.cudnn_sdp_enabled
_OTHERS: tuple[Callable[[], bool], ...] = (
    torch.backends.cuda.flash_sdp_enabled,
    torch.backends.cuda.mem_efficient_sdp_enabled,
    torch.backends.cuda.math_sdp_enabled,
)


class _WithoutCudnn:
    """PyTorch's switch is one for the whole process: the last block to end restores it."""

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


_without_cudnn = _WithoutCudnn()


def without_cudnn(q_BHTK: Tensor) -> AbstractContextManager[None]:
    """Around a call of PyTorch's op with these queries: no cuDNN, unless a plan pays or the user chose kernels."""
    if not q_BHTK.is_cuda or q_BHTK.shape[2] >= PAYS_FROM or torch.compiler.is_compiling() or _is_chosen():
        return _UNCHANGED
    return _without_cudnn


def _is_chosen() -> bool:
    """Whether the user has restricted the kernels; then there may be no other."""
    return not all(is_allowed() for is_allowed in _OTHERS)

"""What the implementations for a CPU share: how many threads a loop of small ops uses, and a faster tanh.

Threads synchronise at the end of every op. A step of a recurrence is a handful of short ops, so threads would meet many
thousand times a second for little work, and each time all wait for the one that lost its core to another process.

tanh by `expm1`, which PyTorch computes faster on a CPU than tanh: `tanh(a) = 1 / (1 + 2 / (e^{2a} - 1))`. The sigmoid,
`2 σ(2a) - 1`, would be faster still, but loses all digits where a is small.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

# Multiplications from which a product was measured to gain by more than one thread.
ENOUGH = 1 << 22


@contextmanager
def threads_for(multiplications: int, *, enough: int | None = None) -> Iterator[None]:
    """Around a loop whose largest product takes so many: one thread, unless that is large."""
    before = torch.get_num_threads()
    if before == 1 or multiplications >= (enough or ENOUGH):
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_MANY = 4096  # numbers from which it pays for three more ops


def by_expm1(numbers: int, dtype: torch.dtype) -> bool:
    """Whether it is faster for so many numbers. In half precision every op would round."""
    return numbers >= _MANY and dtype in (torch.float32, torch.float64)


def tanh_of_half_(twice: Tensor, one: Tensor) -> Tensor:
    """`tanh(a)` in the place of `2a`; the scalar 1 as a tensor comes from the caller, who makes it once."""
    twice.expm1_().reciprocal_()
    return torch.add(one, twice, alpha=2, out=twice).reciprocal_()

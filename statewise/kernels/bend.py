"""tanh by `expm1`, which PyTorch computes faster on a CPU than tanh itself: `tanh(a) = 1 / (1 + 2 / (e^{2a} - 1))`.

By the sigmoid, `2 σ(2a) - 1`, it would be faster still, and without any digits where a is small. This keeps them.
"""

import torch
from torch import Tensor

_MANY = 4096  # numbers from which three ops more are made up for


def by_expm1(numbers: int, dtype: torch.dtype) -> bool:
    """Whether so many should take this way. In half precision every op would round."""
    return numbers >= _MANY and dtype in (torch.float32, torch.float64)


def tanh_of_half_(twice: Tensor, one: Tensor) -> Tensor:
    """`tanh(a)` in the place of `2a`; the scalar 1 as a tensor comes from the caller, who makes it once."""
    twice.expm1_().reciprocal_()
    return torch.add(one, twice, alpha=2, out=twice).reciprocal_()

"""How many of PyTorch's threads a loop of small ops takes: one, unless its products are large.

Threads meet at the end of every op. A step of a recurrence is a handful of short ops, so they would meet many thousand
times a second for little work in between, and each time all wait for whoever lost its core to another process.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Multiplications from which a product was measured to gain by more than one thread.
ENOUGH = 1 << 22


@contextmanager
def threads_for(multiplications: int, *, enough: int | None = None) -> Iterator[None]:
    """Around a loop whose largest product takes so many. Afterwards all is as it was."""
    before = torch.get_num_threads()
    if before == 1 or multiplications >= (enough or ENOUGH):
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

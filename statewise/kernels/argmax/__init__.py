"""The index of the largest number of each row, such as the likeliest token: PyTorch's op, and a kernel for GPUs.

B rows, V numbers of a row.
"""

from torch import Tensor

from statewise.kernels.choice import Choice, is_asked
from statewise.kernels.with_triton import load, obstacle

FROM = 4096  # numbers of a row; PyTorch takes one block for a row, and fewer keep it no longer than two launches


def choice(like_BV: Tensor) -> Choice:
    """There is one fast implementation; asking for any implementation by name gives PyTorch's op."""
    if is_asked():
        return Choice("fused", "a lens is open, or somebody asked for one kind of kernel")
    reason = obstacle(like_BV)
    if reason is None and not (like_BV.dim() == 2 and like_BV.is_contiguous()):
        reason = "it reads rows that lie behind each other"
    if reason is None and like_BV.shape[1] < FROM:
        reason = f"it is for rows of {FROM:,} numbers and more"
    if reason is not None:
        return Choice("fused", f"not triton: {reason}")
    return Choice("triton", "many programs share a row, where PyTorch's op has one block for it")


def argmax(x_BV: Tensor) -> Tensor:
    """As `torch.argmax` over the last axis: the first of equal numbers; NaN is larger than any."""
    if choice(x_BV).implementation == "fused":
        return x_BV.argmax(-1)
    at_B: Tensor = load("argmax").argmax(x_BV)
    return at_B

"""The index of the largest number of each row, such as the likeliest token: PyTorch's op, and a kernel for GPUs.

B rows, V numbers of a row.
"""

from torch import Tensor

from statewise.kernels.choice import Choice
from statewise.kernels.with_triton import load, triton_or

FROM = 4096  # numbers of a row; PyTorch takes one block for a row, and fewer keep it no longer than two launches


def choice(like_BV: Tensor) -> Choice:
    variant = None
    if not (like_BV.dim() == 2 and like_BV.is_contiguous()):
        variant = "it reads rows that lie behind each other"
    elif like_BV.shape[1] < FROM:
        variant = f"it is for rows of {FROM:,} numbers and more"
    return triton_or(
        "fused", like_BV, "many programs share a row, where PyTorch's op has one block for it", variant=variant
    )


def argmax(x_BV: Tensor) -> Tensor:
    """As `torch.argmax` over the last axis: the first of equal numbers; NaN is larger than any."""
    if choice(x_BV).implementation == "fused":
        return x_BV.argmax(-1)
    at_B: Tensor = load("argmax").argmax(x_BV)
    return at_B

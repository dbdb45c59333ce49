"""Where the largest number of each row is: the likeliest token of a large vocabulary. PyTorch's op, and one for GPUs.

B rows, V numbers of a row.
"""

from torch import Tensor

from statewise.kernels.choice import Choice, is_asked
from statewise.kernels.with_triton import load, obstacle

FROM = 4096  # numbers of a row; PyTorch takes one block for a row, and fewer keep it no longer than two launches


def choice(like_BV: Tensor) -> Choice:
    """There is one fast form: whoever asks for a form by name gets PyTorch's op."""
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


def largest(x_BV: Tensor) -> Tensor:
    """The first place of the largest number of each row, as `argmax` finds it; NaN is larger than any."""
    if choice(x_BV).implementation == "fused":
        return x_BV.argmax(-1)
    at_B: Tensor = load("largest").largest(x_BV)
    return at_B

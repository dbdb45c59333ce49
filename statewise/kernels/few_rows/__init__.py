"""A matrix times a few vectors, which is what writing text multiplies: a kernel for GPUs, and where it is taken.

B rows, I input width, O output width.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from statewise.kernels.choice import Choice, is_asked
from statewise.kernels.with_triton import load, obstacle

MOST_ROWS = 64  # measured on an H200: more was not tried
_DTYPES = (torch.bfloat16, torch.float16)


def choice(weight_OI: Tensor, *, rows: int) -> Choice:
    """There is one fast form: whoever asks for a form by name gets PyTorch's product."""
    if is_asked():
        return Choice("fused", "a lens is open, or somebody asked for one kind of kernel")
    reason = obstacle(weight_OI)
    if reason is None and weight_OI.dtype not in _DTYPES:
        reason = f"it reads {' and '.join(str(dtype).removeprefix('torch.') for dtype in _DTYPES)}"
    if reason is None and not (weight_OI.dim() == 2 and weight_OI.is_contiguous()):
        reason = "it reads matrices that lie row by row"
    if reason is None and rows > MOST_ROWS:
        reason = f"it takes up to {MOST_ROWS} rows"
    if reason is not None:
        return Choice("fused", f"not triton: {reason}")
    return Choice("triton", "each program reads some rows of the matrix once, at the speed of the memory")


def prepared(weight_OI: Tensor, rows: int) -> Callable[[Tensor, Tensor | None, str, Tensor | None], Tensor] | None:
    """What `product` is for this matrix and so many rows; None where PyTorch's product should be taken."""
    if choice(weight_OI, rows=rows).implementation == "fused":
        return None
    return lambda x_BI, bias_O, bend, onto_BO: product(x_BI, weight_OI, bias_O, bend, onto_BO)


def product(x_BI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, bend: str, onto_BO: Tensor | None) -> Tensor:
    """`onto + bend(W x + b)`, by one kernel and without gradients. `bend`: none, relu or gelu (GPT-2's)."""
    y_BO: Tensor = load("few_rows").product(x_BI, weight_OI, bias_O, bend, onto_BO)
    return y_BO

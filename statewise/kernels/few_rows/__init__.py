"""A matrix times a few vectors, as in decoding: packed weights on a CPU, a kernel on GPUs, and where each is used.

B rows, I input width, O output width.
"""

import torch
from torch import Tensor

from statewise.kernels.choice import Choice
from statewise.kernels.few_rows.packed import LARGE as LARGE
from statewise.kernels.few_rows.packed import Activation
from statewise.kernels.few_rows.packed import Product as Product
from statewise.kernels.few_rows.packed import linear as linear
from statewise.kernels.few_rows.packed import packed_products as packed_products
from statewise.kernels.few_rows.packed import prepare_cpu as prepare_cpu
from statewise.kernels.with_triton import load, triton_or

MOST_ROWS = 64  # measured on an H200: more was not tried
_DTYPES = (torch.bfloat16, torch.float16)


def choice(weight_OI: Tensor, *, rows: int) -> Choice:
    variant = None
    if weight_OI.dtype not in _DTYPES:
        variant = f"it reads {' and '.join(str(dtype).removeprefix('torch.') for dtype in _DTYPES)}"
    elif not (weight_OI.dim() == 2 and weight_OI.is_contiguous()):
        variant = "it reads matrices that lie row by row"
    elif rows > MOST_ROWS:
        variant = f"it takes up to {MOST_ROWS} rows"
    why = "each program reads some rows of the matrix once, at the speed of the memory"
    return triton_or("fused", weight_OI, why, variant=variant)


def prepare_gpu(weight_OI: Tensor, rows: int) -> Product | None:
    """The product with this matrix for so many rows, on a GPU; None: use PyTorch's own."""
    if choice(weight_OI, rows=rows).implementation == "fused":
        return None
    return lambda x_BI, bias_O, activation, onto_BO: product(x_BI, weight_OI, bias_O, activation, onto_BO)


def product(
    x_BI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, activation: Activation, onto_BO: Tensor | None
) -> Tensor:
    """`onto + activation(W x + b)`, by one kernel and without gradients. `gelu` is GPT-2's (tanh)."""
    y_BO: Tensor = load("few_rows").product(x_BI, weight_OI, bias_O, activation, onto_BO)
    return y_BO

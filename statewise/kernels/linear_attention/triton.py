"""Linear attention with a decay on a GPU: `chunk_kernels.py`, with v as what is written."""

from torch import Tensor

from statewise.kernels.associative_memory import Inputs
from statewise.kernels.chunk_autograd import remember
from statewise.kernels.linear_attention import chunked


def linear_attention(
    inputs: Inputs, s_BHKV: Tensor, lengths_B: Tensor | None, *, exact: bool = True
) -> tuple[Tensor, Tensor]:
    """`naive.linear_attention`; the state and all sums in float32, and products in it too if `exact`, unless inputs
    are in bfloat16: then products and outputs are."""
    return remember(inputs, s_BHKV, lengths_B, exact=exact, again=chunked.linear_attention)

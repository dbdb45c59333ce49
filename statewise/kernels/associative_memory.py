"""A matrix as memory: an outer product writes to it, a product with a vector reads from it.

Written out entry by entry: for one time step a batch of tiny matrix products is slower, several times over where
heads are narrow. ... any leading axes (batch and heads), K key width, V value width.
"""

from torch import Tensor


def outer(k_K: Tensor, v_V: Tensor) -> Tensor:
    """`k vᵀ`, `[..., K, V]`."""
    return k_K[..., :, None] * v_V[..., None, :]


def read(q_K: Tensor, s_KV: Tensor) -> Tensor:
    """`Sᵀ q`, `[..., V]`."""
    return (s_KV * q_K[..., None]).sum(-2)

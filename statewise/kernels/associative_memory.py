"""A matrix as memory: an outer product writes to it, a product with a vector reads from it.

Written out entry by entry: for one time step a batch of tiny matrix products is slower, several times over where
heads are narrow. On the meta device there is nothing to be slow, and PyTorch's FLOP counter sees only products: there
both are products. ... any leading axes (batch and heads), K key width, V value width.
"""

from torch import Tensor


def outer(k_K: Tensor, v_V: Tensor) -> Tensor:
    """`k vᵀ`, `[..., K, V]`."""
    if k_K.is_meta:
        return k_K[..., :, None] @ v_V[..., None, :]
    return k_K[..., :, None] * v_V[..., None, :]


def read(q_K: Tensor, s_KV: Tensor) -> Tensor:
    """`Sᵀ q`, `[..., V]`."""
    if q_K.is_meta:
        return (q_K[..., None, :] @ s_KV)[..., 0, :]
    return (s_KV * q_K[..., None]).sum(-2)

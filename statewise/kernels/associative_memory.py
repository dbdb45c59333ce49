"""A matrix as memory: an outer product writes to it, a product with a vector reads from it.

Written out entry by entry: for one time step a batch of tiny matrix products is slower, several times over where
heads are narrow. ... any leading axes (batch and heads), K key width, V value width.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from statewise.core import Switch

_as_products: Switch[bool] = Switch("memory_as_products", False)


@contextmanager
def as_products() -> Iterator[None]:
    """Inside this block both are matrix products, which PyTorch's FLOP counter sees."""
    with _as_products.set(True):
        yield


def outer(k_K: Tensor, v_V: Tensor) -> Tensor:
    """`k vᵀ`, `[..., K, V]`."""
    if _as_products.get():
        return k_K[..., :, None] @ v_V[..., None, :]
    return k_K[..., :, None] * v_V[..., None, :]


def read(q_K: Tensor, s_KV: Tensor) -> Tensor:
    """`Sᵀ q`, `[..., V]`."""
    if _as_products.get():
        return (q_K[..., None, :] @ s_KV)[..., 0, :]
    return (s_KV * q_K[..., None]).sum(-2)

"""A matrix as memory: an outer product writes to it, a product with a vector reads from it.

Written out entry by entry: for one time step a batch of tiny matrix products is slower, several times over where
heads are narrow. On the meta device there is nothing to be slow, and PyTorch's FLOP counter sees only products: there
both are products. ... any leading axes (batch and heads), K key width, V value width.
"""

from collections.abc import Callable

from torch import Tensor

from statewise.kernels.choice import Choice
from statewise.kernels.time_axis import is_autocast, no_autocast, wide
from statewise.kernels.with_triton import load

Inputs = tuple[Tensor, ...]  # along time, [B, T, H, ...]: queries, keys, values, then one number a head or two
Form = Callable[[Inputs, Tensor, Tensor | None], tuple[Tensor, Tensor]]
_WIDEST = 128  # a key, whose chunk the registers of one program hold


def too_wide(state_KV: Tensor) -> str | None:
    """Why Triton's kernels cannot take this state; None when they can."""
    return f"it takes keys up to {_WIDEST} wide" if state_KV.shape[-2] > _WIDEST else None


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


def run(
    op: str, choice: Choice, forms: dict[str, Form], inputs: Inputs, s_BHKV: Tensor, lengths_B: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What is read at each time step, and the state after the last, in float32 at least.

    Where Triton runs and queries, keys and values are bfloat16, so is what is read: it is rounded once, from sums in
    float32, and half as much is moved.
    """
    exact = not is_autocast(s_BHKV)
    with no_autocast(s_BHKV):
        if choice.implementation == "triton":  # which widens in registers what it reads
            y_BTHV, after_BHKV = getattr(load(op), op)(inputs, *wide(s_BHKV), lengths_B, exact=exact)
            return y_BTHV, after_BHKV
        *along, begun_BHKV = wide(*inputs, s_BHKV)
        return forms[choice.implementation](tuple(along), begun_BHKV, lengths_B)

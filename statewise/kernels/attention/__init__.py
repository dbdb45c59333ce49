"""Attention over a list: the equation, PyTorch's own op, and the choice between them; and a step of it, in place.

B batch, T queries, S slots, H heads of queries, G heads of keys and values, K width of a head.
"""

import torch
from torch import Tensor

from statewise.kernels.attention import fused, naive
from statewise.kernels.attention.cache import append as append
from statewise.kernels.attention.cache import up_to as up_to
from statewise.kernels.attention.cache import used_slots, write_
from statewise.kernels.attention.cache import with_room as with_room
from statewise.kernels.attention.naive import Mask as Mask
from statewise.kernels.choice import ATTENTION_OP, Choice, Wish, choose
from statewise.kernels.with_triton import load, triton_or

WIDEST = 256  # numbers of a head that a program of `attend_` holds


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("attention", obstacles=[], wish=wish, traced=ATTENTION_OP)


def attention(
    q_BTHK: Tensor,
    k_BSGK: Tensor,
    v_BSGK: Tensor,
    mask: Mask,
    *,
    scale: float,
    dropout: float = 0.0,
    wish: Wish = "auto",
) -> Tensor:
    """`dropout` is that of attention's weights, while training; otherwise 0."""
    run = fused.attention if choice(wish=wish).implementation == "fused" else naive.attention
    # A list may be kept in another precision than queries are computed in (autocast).
    return run(q_BTHK, k_BSGK.to(q_BTHK.dtype), v_BSGK.to(q_BTHK.dtype), mask, scale, dropout)


def step_choice(q_BHK: Tensor, *, wish: Wish = "auto") -> Choice:
    """Which form `attend_` has for such queries."""
    variant = f"it takes heads up to {WIDEST} wide" if q_BHK.shape[-1] > WIDEST else None
    why = "one kernel writes the new entries and reads the slots in use, where PyTorch's ops take many"
    return triton_or("fused", q_BHK, why, variant=variant, wish=wish)


def attend_(
    q_BHK: Tensor,
    k_BGK: Tensor,
    v_BGK: Tensor,
    keys_BSGK: Tensor,
    values_BSGK: Tensor,
    length_B: Tensor,
    *,
    slopes_H: Tensor | None,
    scale: float,
    wish: Wish = "auto",
) -> tuple[Tensor, Tensor]:
    """One more token of each row: its key and value into the next free slot of the lists, its queries over all in use.

    Returns the answers `[B, H, K]`, and how many slots each row uses now. No gradient goes through it.
    """
    if q_BHK.is_cuda and step_choice(q_BHK, wish=wish).implementation == "triton":
        result: tuple[Tensor, Tensor] = load("attention").attend_(
            q_BHK, k_BGK, v_BGK, keys_BSGK, values_BSGK, length_B, slopes_H, scale
        )
        return result
    use = used_slots(keys_BSGK, length_B)
    keys_BSGK = write_(keys_BSGK, k_BGK, length_B, use)
    values_BSGK = write_(values_BSGK, v_BGK, length_B, use)
    if use.level and slopes_H is None and choice(wish=wish).implementation == "fused":  # all is seen, wherever it is
        y_BHK = fused.one_step(q_BHK, keys_BSGK, values_BSGK, scale)
        return y_BHK, length_B + 1
    at_B1 = length_B[:, None]
    slots_BS = torch.arange(use.slots, device=at_B1.device).expand(at_B1.shape[0], -1)
    mask = Mask(at_B1, slots_BS, slopes_H=slopes_H)
    y_B1HK = attention(q_BHK[:, None], keys_BSGK, values_BSGK, mask, scale=scale, wish=wish)
    return y_B1HK[:, 0], length_B + 1

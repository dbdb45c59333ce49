"""Ways to tell a set from a sequence: a vector added, a slope on the scores. Turned keys are an op: `kernels.rotary`.

Positions are whole numbers, one a row and time step, because rows differ. B batch, T time, D width,
H heads, K width of a head.
"""

import torch
from torch import Tensor


def sinusoid(at: Tensor, width: int, *, like: Tensor) -> Tensor:
    """Vaswani et al. 2017: `p[2i] = sin(at / 10000^(2i/D))`, `p[2i + 1] = cos` of the same; `[..., D]`."""
    even = torch.arange(0, width, 2, dtype=torch.float64, device=at.device)
    angle = at[..., None] * 10_000.0 ** (-even / (width + width % 2))  # in float64, as rotary angles are
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :width].to(like.dtype)


def alibi_slopes(heads: int, *, like: Tensor) -> Tensor:
    """Press et al. 2022: `2^(-8/n), 2^(-16/n), …` for n heads, a power of two.

    For other counts: those of the next lower power, then every second one of the next higher power.
    """
    lower = 2 ** (heads.bit_length() - 1)
    wide = torch.promote_types(like.dtype, torch.float32)
    each = torch.arange(1, lower + 1, dtype=wide, device=like.device)
    return torch.exp2(torch.cat([-8 * each / lower, -8 * (2 * each - 1) / (2 * lower)])[:heads])

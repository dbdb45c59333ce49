"""Rotary positions (Su et al. 2021), written out. B batch, T time, H heads, K width of a head."""

import torch
from torch import Tensor


def rates(half: int, *, base: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`base^(-i / half)`: fast turns first."""
    even = torch.arange(0, 2 * half, 2, dtype=dtype, device=device)
    turns: Tensor = base ** (-even / (2 * half))
    return turns


def rotate(x_BTHK: Tensor, at_BT: Tensor, base: float) -> Tensor:
    half = x_BTHK.shape[-1] // 2
    # In float32 at least: a position of thousands has no room in bfloat16.
    wide = torch.float64 if x_BTHK.dtype == torch.float64 else torch.float32
    rate_h = rates(half, base=base, dtype=wide, device=x_BTHK.device)
    angle_BT1h = (at_BT[..., None].to(wide) * rate_h)[:, :, None]
    cos, sin = angle_BT1h.cos().to(x_BTHK.dtype), angle_BT1h.sin().to(x_BTHK.dtype)
    first, second, rest = torch.split(x_BTHK, [half, half, x_BTHK.shape[-1] - 2 * half], dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)

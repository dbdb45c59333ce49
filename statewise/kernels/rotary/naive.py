"""Rotary positions (Su et al. 2021), written out. B batch, T time, H heads, K width of a head."""

import torch
from torch import Tensor


def rates(half: int, *, base: float, device: torch.device) -> Tensor:
    """`base^(-i / half)`: fast turns first."""
    even = torch.arange(0, 2 * half, 2, dtype=torch.float64, device=device)
    turns: Tensor = base ** (-even / (2 * half))
    return turns


def rotate(x_BTHK: Tensor, at_BT: Tensor, base: float) -> Tensor:
    half = x_BTHK.shape[-1] // 2
    # In float64: after millions of tokens an angle has no digits left behind the point in float32.
    angle_BT1h = (at_BT[..., None] * rates(half, base=base, device=x_BTHK.device))[:, :, None]
    cos, sin = angle_BT1h.cos().to(x_BTHK.dtype), angle_BT1h.sin().to(x_BTHK.dtype)
    first, second, rest = torch.split(x_BTHK, [half, half, x_BTHK.shape[-1] - 2 * half], dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)

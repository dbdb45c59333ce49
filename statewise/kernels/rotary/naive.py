"""Rotary positions (Su et al. 2021), written out. B batch, T time, H heads, K width of a head."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor


class Scaling(NamedTuple):
    """Slower turns, for texts longer than those of training: a rate becomes `rate · (kept + (1 - kept) / factor)`.

    `kept` is 0 for `linear` (Chen et al. 2023). Otherwise it is 1 for pairs that turn more than `fast` times within
    `context`, and 0 for those that turn less than `slow` times. In between it falls in proportion to the turns for
    `llama3` (Llama 3.1), to the number of the pair for `yarn` (Peng et al. 2023).
    """

    kind: Literal["linear", "llama3", "yarn"]
    factor: float
    context: int
    slow: float
    fast: float

    def temperature(self) -> float:
        """What `yarn` multiplies the scores of attention by."""
        return (0.1 * math.log(self.factor) + 1) ** 2 if self.kind == "yarn" else 1.0


def rates(half: int, *, base: float, scaling: Scaling | None, device: torch.device) -> Tensor:
    """`base^(-i / half)`, scaled: fast turns first."""
    even = torch.arange(0, 2 * half, 2, dtype=torch.float64, device=device)
    turns: Tensor = base ** (-even / (2 * half))
    if scaling is None:
        return turns
    match scaling.kind:
        case "linear":
            return turns / scaling.factor
        case "llama3":
            times = turns * scaling.context / (2 * math.pi)
            kept = ((times - scaling.slow) / (scaling.fast - scaling.slow)).clamp(0, 1)
        case "yarn":
            first, last = (
                half * math.log(scaling.context / (times * 2 * math.pi)) / math.log(base)
                for times in (scaling.fast, scaling.slow)
            )
            first, last = max(math.floor(first), 0), min(math.ceil(last), 2 * half - 1)
            kept = 1 - ((even / 2 - first) / max(last - first, 1e-3)).clamp(0, 1)
    return turns * (kept + (1 - kept) / scaling.factor)


def rotate(x_BTHK: Tensor, at_BT: Tensor, base: float, scaling: Scaling | None = None) -> Tensor:
    half = x_BTHK.shape[-1] // 2
    # In float64: after millions of tokens an angle has no digits left behind the point in float32.
    angle_BT1h = (at_BT[..., None] * rates(half, base=base, scaling=scaling, device=x_BTHK.device))[:, :, None]
    cos, sin = angle_BT1h.cos().to(x_BTHK.dtype), angle_BT1h.sin().to(x_BTHK.dtype)
    first, second, rest = torch.split(x_BTHK, [half, half, x_BTHK.shape[-1] - 2 * half], dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)

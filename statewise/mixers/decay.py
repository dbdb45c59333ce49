"""Where decays start that depend on the input: `α = exp(-e^r · softplus(W x + b))`, one a head."""

import math

import torch
from torch import Tensor, nn


def draw_rates(
    log_rate_H: Tensor,
    b_H: Tensor,
    *,
    generator: torch.Generator | None,
    rate: tuple[float, float] = (1.0, 16.0),
    step: tuple[float, float] = (1e-3, 1e-1),
) -> None:
    """Rates even in `rate`, steps even in the logarithm over `step` (Gu and Dao 2023): short memories and long ones."""
    nn.init.uniform_(log_rate_H, *rate, generator=generator)
    nn.init.uniform_(b_H, math.log(step[0]), math.log(step[1]), generator=generator)
    with torch.no_grad():
        log_rate_H.log_()
        step_H = b_H.exp()
        b_H.copy_(step_H + torch.log(-torch.expm1(-step_H)))  # where softplus is that step

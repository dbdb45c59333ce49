"""Where recurrent weights start. Gates are stacked along axis 0, each drawn as a matrix of its own.

- `orthogonal`: each recurrent gate a random orthogonal matrix (Saxe et al. 2014), inputs by Glorot.
- `published`: what the model's own paper did; each mixer says which and fills accordingly.
- `torch`: uniform in ±1/√width, as torch.nn does.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

Scheme = Literal["orthogonal", "published", "torch"]


def _uniform(weight: Tensor, width: int, generator: torch.Generator | None) -> None:
    bound = 1 / math.sqrt(width)
    nn.init.uniform_(weight, -bound, bound, generator=generator)


def fill_recurrent(weight: Tensor, *, gates: int, scheme: Scheme, generator: torch.Generator | None) -> None:
    """A `[gates * D, P]` recurrent matrix."""
    _fill(nn.init.orthogonal_, weight, gates, scheme, generator)


def fill_input(weight: Tensor, *, gates: int, scheme: Scheme, generator: torch.Generator | None) -> None:
    """A `[gates * D, I]` input matrix."""
    _fill(nn.init.xavier_uniform_, weight, gates, scheme, generator)


def _fill(
    fill_gate: Callable[..., Tensor], weight: Tensor, gates: int, scheme: Scheme, generator: torch.Generator | None
) -> None:
    if scheme == "torch":
        _uniform(weight, weight.shape[0] // gates, generator)
        return
    for gate in weight.chunk(gates):
        fill_gate(gate, generator=generator)


def fill_decay(
    log_rate_H: Tensor,
    b_H: Tensor,
    *,
    generator: torch.Generator | None,
    rate: tuple[float, float] = (1.0, 16.0),
    step: tuple[float, float] = (1e-3, 1e-1),
) -> None:
    """For decays `α = exp(-e^r · softplus(W x + b))`, one per head: short memories and long ones (Gu and Dao 2023).

    Rates are uniform in `rate`, steps log-uniform in `step`.
    """
    nn.init.uniform_(log_rate_H, *rate, generator=generator)
    nn.init.uniform_(b_H, math.log(step[0]), math.log(step[1]), generator=generator)
    with torch.no_grad():
        log_rate_H.log_()
        step_H = b_H.exp()
        b_H.copy_(step_H + torch.log(-torch.expm1(-step_H)))  # where softplus is that step

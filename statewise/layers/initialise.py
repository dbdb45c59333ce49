"""Where recurrent weights start. Gates are stacked along axis 0, each drawn as a matrix of its own.

- `orthogonal`: each recurrent gate a random orthogonal matrix (Saxe et al. 2014), inputs by Glorot.
- `published`: what the model's own paper did; each mixer says which and fills accordingly.
- `torch`: uniform in ±1/√width, as torch.nn does.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

Scheme = Literal["orthogonal", "published", "torch"]


def _uniform(weight: Tensor, width: int, generator: torch.Generator | None) -> None:
    bound = 1 / math.sqrt(width)
    nn.init.uniform_(weight, -bound, bound, generator=generator)


def fill_recurrent(weight: Tensor, *, gates: int, scheme: Scheme, generator: torch.Generator | None) -> None:
    """A `[gates * D, P]` recurrent matrix."""
    if scheme == "torch":
        _uniform(weight, weight.shape[0] // gates, generator)
        return
    for gate in weight.chunk(gates):
        nn.init.orthogonal_(gate, generator=generator)


def fill_input(weight: Tensor, *, gates: int, scheme: Scheme, generator: torch.Generator | None) -> None:
    """A `[gates * D, I]` input matrix."""
    if scheme == "torch":
        _uniform(weight, weight.shape[0] // gates, generator)
        return
    for gate in weight.chunk(gates):
        nn.init.xavier_uniform_(gate, generator=generator)

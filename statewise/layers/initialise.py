"""Where recurrent weights start. Gates are stacked along axis 0, each drawn as a matrix of its own.

- `orthogonal`: each recurrent gate a random orthogonal matrix (Saxe et al. 2014), inputs by Glorot.
- `published`: what the model's own paper did; each mixer says which and fills accordingly.
- `torch`: uniform in ±1/√width, as torch.nn does.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

Scheme = Literal["orthogonal", "published", "torch"]

_READ_LATER: ContextVar[bool] = ContextVar("weights are read from a file", default=False)


@contextmanager
def read_later() -> Iterator[None]:
    """Weights of models built inside this block are overwritten by a file, so the dear ones need not be drawn.

    Orthogonal matrices took most of the time in which a run was opened.
    """
    token = _READ_LATER.set(True)
    try:
        yield
    finally:
        _READ_LATER.reset(token)


def are_read_later() -> bool:
    return _READ_LATER.get()


class Filler(NamedTuple):
    """Fills the weights of one module: by its scheme, from its generator."""

    scheme: Scheme
    generator: torch.Generator | None

    def recurrent(self, weight: Tensor, *, gates: int = 1) -> None:
        """A `[gates * D, P]` recurrent matrix."""
        for gate in self._gates(weight, gates):
            nn.init.orthogonal_(gate, generator=self.generator)

    def input(self, weight: Tensor, *, gates: int = 1) -> None:
        """A `[gates * D, I]` input matrix."""
        for gate in self._gates(weight, gates):
            nn.init.xavier_uniform_(gate, generator=self.generator)

    def _gates(self, weight: Tensor, gates: int) -> tuple[Tensor, ...]:
        """Those to fill one by one: none by the scheme `torch`, which fills them here, or if a file does."""
        if are_read_later():
            return ()
        if self.scheme != "torch":
            return weight.chunk(gates)
        bound = 1 / math.sqrt(weight.shape[0] // gates)
        nn.init.uniform_(weight, -bound, bound, generator=self.generator)
        return ()


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

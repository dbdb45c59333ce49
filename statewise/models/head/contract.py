"""What every head has in common: features in, parameters of a distribution out, and functions of those.

C channels of a real-valued target; each has its own parameters.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from statewise.core import Described
from statewise.models.head.projection import Projection
from statewise.specs import UserError

P = TypeVar("P")


class Head(Described, ABC, Generic[P]):
    """From features `[..., D]` to parameters P. Concrete heads are final."""

    loss: ClassVar[str]  # what `nats` really counts: figures of unlike losses do not compare

    @abstractmethod
    def forward(self, y: Tensor) -> P: ...

    def __call__(self, y: Tensor) -> P:
        params: P = super().__call__(y)
        return params

    @abstractmethod
    def nats(self, params: P, target: Tensor) -> Tensor:
        """How surprising each element of the target was; for heads without a density, the loss in its place."""

    @abstractmethod
    def sample(self, params: P, generator: torch.Generator | None = None) -> Tensor:
        """One draw for each element. No gradient passes."""


class RealHead(Head[P]):
    """A head for real values: `nats`, `mean`, `quantile` and `sample` are all `[..., C]`."""

    project: Projection

    @abstractmethod
    def mean(self, params: P) -> Tensor: ...

    @abstractmethod
    def quantile(self, params: P, q: float) -> Tensor:
        """The value that the target stays below with probability q."""

    def interval(self, params: P, coverage: float) -> tuple[Tensor, Tensor]:
        """The central interval that should hold a share `coverage` of the targets."""
        check_probability(coverage)
        return self.quantile(params, (1 - coverage) / 2), self.quantile(params, (1 + coverage) / 2)


def check_probability(q: float) -> None:
    if not 0 < q < 1:
        raise UserError(f"{q} is not a probability between 0 and 1, both left out")

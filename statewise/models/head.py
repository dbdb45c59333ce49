"""From features to a distribution: the contract of all heads, and those over tokens and bits.

C channels of a target, each with its own parameters; V tokens; E embedding width.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Described
from statewise.kernels.cross_entropy import token_nats, total_nats
from statewise.kernels.few_rows import linear
from statewise.layers import Embedding, make_linear
from statewise.specs import UserError


@final
class Projection(Described):
    """`[..., D]` to `[..., C, P]`, in at least float32; `start` is what the P numbers are for features of 0."""

    def __init__(
        self, width: int, channels: int, *, start: Sequence[float], generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        if channels < 1:
            raise UserError(f"channels = {channels} is not valid, expected 1 or more")
        self.channels = channels
        self.weight_OD = nn.Parameter(torch.empty(channels * len(start), width))
        self.bias_O = nn.Parameter(torch.tensor([float(value) for value in start] * channels))
        nn.init.xavier_uniform_(self.weight_OD, generator=generator)

    def forward(self, y: Tensor) -> Tensor:
        out = F.linear(y, self.weight_OD, self.bias_O)
        return out.to(torch.promote_types(out.dtype, torch.float32)).view(*y.shape[:-1], self.channels, -1)

    def __call__(self, y: Tensor) -> Tensor:
        out: Tensor = super().__call__(y)
        return out


P = TypeVar("P")


class Head(Described, ABC, Generic[P]):
    """From features `[..., D]` to parameters P. Concrete heads are final."""

    loss: ClassVar[str]  # what `nats` really measures: different losses do not compare

    @abstractmethod
    def forward(self, y: Tensor) -> P: ...

    def __call__(self, y: Tensor) -> P:
        params: P = super().__call__(y)
        return params

    @abstractmethod
    def nats(self, params: P, target: Tensor) -> Tensor:
        """`-log p` of each element of the target; for heads without a density, their loss."""

    @abstractmethod
    def sample(self, params: P, generator: torch.Generator | None = None) -> Tensor:
        """One sample for each element. No gradient passes."""


class ValueHead(Head[P]):
    """A head for what a forecaster feeds back to itself: `mean`, `drawn` and `sample` are all `[..., C]`."""

    @abstractmethod
    def mean(self, params: P) -> Tensor: ...

    @abstractmethod
    def drawn(self, params: P, uniform: Tensor) -> Tensor:
        """One sample for each element, out of two numbers in [0, 1): `uniform` is `[..., C, 2]`, in float64."""

    @torch.no_grad()
    def sample(self, params: P, generator: torch.Generator | None = None) -> Tensor:
        like = self.mean(params)
        uniform = torch.rand(*like.shape, 2, generator=generator, dtype=torch.float64, device=like.device)
        return self.drawn(params, uniform)


class RealHead(ValueHead[P]):
    """A head for real values: `nats` and `quantile` are `[..., C]`, too."""

    project: Projection

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


@final
class CategoricalHead(Head[Tensor]):
    """`logits = V y + c`; tied, V is the embedding matrix (through a narrowing map where widths differ).

    Without `bias`, c is 0.
    """

    loss: ClassVar[str] = "nats"

    def __init__(
        self,
        width: int,
        vocab: int,
        *,
        tie: Embedding | None = None,
        bias: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.bias_V: Tensor
        if bias:
            self.bias_V = nn.Parameter(torch.zeros(vocab))
        else:
            self.register_buffer("bias_V", torch.zeros(vocab), persistent=False)
        self.narrow_ED: nn.Parameter | None = None
        if tie is None:
            self.weight_VE = nn.Parameter(torch.empty(vocab, width))
            nn.init.xavier_uniform_(self.weight_VE, generator=generator)
            return
        self.weight_VE = tie.weight
        if tie.weight.shape[1] != width:
            self.narrow_ED = nn.Parameter(torch.empty(tie.weight.shape[1], width))
            nn.init.xavier_uniform_(self.narrow_ED, generator=generator)

    def forward(self, y: Tensor) -> Tensor:
        return linear(self._narrowed(y), self.weight_VE, self.bias_V)

    def _narrowed(self, y: Tensor) -> Tensor:
        return y if self.narrow_ED is None else y @ self.narrow_ED.mT

    def nats(self, params: Tensor, target: Tensor) -> Tensor:
        """`-log p(target)`, of the shape of the target."""
        logits_NV = params.flatten(0, -2)
        wide_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
        return F.cross_entropy(wide_NV, target.flatten(), reduction="none").view(target.shape)

    def total_nats(self, y: Tensor, target: Tensor) -> Tensor:
        """The sum of `nats`, straight from the features: the logits of many tokens never all exist at once."""
        return total_nats(self._narrowed(y).flatten(0, -2), self.weight_VE, self.bias_V, target.flatten())

    @torch.no_grad()
    def token_nats(self, y: Tensor, target: Tensor) -> Tensor:
        """`nats` straight from the features, without gradients, and without all logits at once."""
        y_NE = self._narrowed(y).flatten(0, -2)
        return token_nats(y_NE, self.weight_VE, self.bias_V, target.flatten()).view(target.shape)

    @torch.no_grad()
    def sample(self, params: Tensor, generator: torch.Generator | None = None) -> Tensor:
        p_NV = params.flatten(0, -2).double().softmax(-1)
        return torch.multinomial(p_NV, 1, generator=generator).view(params.shape[:-1])


class ScalarHead(Head[Tensor]):
    """One number for each channel, `[..., C]`."""

    def __init__(self, width: int, channels: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.project = Projection(width, channels, start=[0.0], generator=generator)

    def forward(self, y: Tensor) -> Tensor:
        return self.project(y).squeeze(-1)


@final
class BernoulliHead(ScalarHead, ValueHead[Tensor]):
    """Logits `[..., C]`; the nats of a frame are the sum over its bits."""

    loss: ClassVar[str] = "nats"

    def nats(self, params: Tensor, target: Tensor) -> Tensor:
        """Of each frame, `[...]`."""
        return F.binary_cross_entropy_with_logits(params, target.to(params.dtype), reduction="none").sum(-1)

    def mean(self, params: Tensor) -> Tensor:
        """The probability of each bit."""
        return params.sigmoid()

    def drawn(self, params: Tensor, uniform: Tensor) -> Tensor:
        return (uniform[..., 0] < params.sigmoid()).to(params)


@final
class TiedHead(nn.Module):
    """Logits of the first `symbols` of an embedding by its own matrix, through a narrowing map where widths differ."""

    def __init__(self, embedding: Embedding, symbols: int, width: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.weight_VE, self.symbols = embedding.weight, symbols
        self.bias_V = nn.Parameter(torch.zeros(symbols))
        self.narrow: nn.Linear | None = None
        if embedding.weight.shape[1] != width:
            self.narrow = make_linear(width, embedding.weight.shape[1], bias=False, generator=generator)

    def forward(self, y: Tensor) -> Tensor:
        y = y if self.narrow is None else self.narrow(y)
        return F.linear(y, self.weight_VE[: self.symbols], self.bias_V)

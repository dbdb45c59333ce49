"""Normalisation by name: layer norm, RMS norm, or none."""

from typing import Literal, assert_never, final

import torch
from torch import Tensor, nn

from statewise.core import Described
from statewise.kernels.layer_norm import norm, sum_and_norm

NormKind = Literal["none", "layer", "rms"]


@final
class Norm(Described):
    """`layer`: `(x - mean) / std · gain + bias` (Ba et al. 2016). `rms`: `x / rms · gain` (Zhang and Sennrich 2019).

    `epsilon` is added to the variance, or to the mean square.
    """

    def __init__(self, kind: NormKind, width: int, *, epsilon: float) -> None:
        super().__init__()
        self.kind: NormKind = kind
        self.eps = epsilon
        self.weight = None if kind == "none" else nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if kind == "layer" else None

    def forward(self, x: Tensor, *, for_products: bool = False) -> Tensor:
        """`for_products`: only products read the result, so under autocast it may come in their precision."""
        if self.weight is None:
            return x
        if x.is_cuda:
            centred = self.kind == "layer"
            return norm(x, self.weight, self.bias, self.eps, centred=centred, for_products=for_products)
        # At once: on a CPU every call in between shows in the time of a decoding step.
        if self.kind == "layer":
            return torch.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
        return torch.rms_norm(x, self.weight.shape, self.weight, self.eps)

    def of_sum(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`x + y`, and its norm for products: one kernel on a GPU."""
        if self.weight is not None and x.is_cuda:
            both = sum_and_norm(x, y, self.weight, self.bias, self.eps, centred=self.kind == "layer")
            if both is not None:
                return both
        total = x + y
        return total, self(total, for_products=True)

    def __call__(self, x: Tensor, *, for_products: bool = False) -> Tensor:
        y: Tensor = super().__call__(x, for_products=for_products)
        return y


def make_norm(kind: NormKind, width: int, *, epsilon: float | None = None) -> Norm:
    """`epsilon` of None is the usual one for the kind."""
    match kind:
        case "none" | "layer":
            return Norm(kind, width, epsilon=1e-5 if epsilon is None else epsilon)
        case "rms":
            return Norm(kind, width, epsilon=1e-6 if epsilon is None else epsilon)
        case _:
            assert_never(kind)

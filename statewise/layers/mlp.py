"""The sublayer without time (widen, activate, narrow), and what stands around sublayers."""

from typing import Literal, NamedTuple, assert_never

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Described, Stacked
from statewise.kernels.few_rows import linear
from statewise.layers.dropout import Dropout
from statewise.layers.linear import make_linear
from statewise.layers.norm import Norm


class MLP(Described, Stacked):
    """`relu`, `gelu` (GPT-2's tanh form), or the gated `swiglu` (Shazeer 2020): `W2 (silu(W1 x) * W3 x)`."""

    def __init__(
        self,
        width: int,
        *,
        hidden: int,
        kind: Literal["relu", "gelu", "swiglu"] = "gelu",
        bias: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.kind: Literal["relu", "gelu", "swiglu"] = kind
        self.up = make_linear(width, 2 * hidden if kind == "swiglu" else hidden, bias=bias, generator=generator)
        self.down = make_linear(hidden, width, bias=bias, generator=generator)

    def stacked(self) -> dict[str, list[int]]:
        return {"up.weight": [self.down.in_features] * (2 if self.kind == "swiglu" else 1)}

    def forward(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """`onto`: what the result is added to, where nothing happens in between."""
        up, down = self.up, self.down
        match self.kind:
            case "relu" | "gelu":
                a = linear(x, up.weight, up.bias, activation=self.kind)
            case "swiglu":
                gate, value = linear(x, up.weight, up.bias).chunk(2, dim=-1)
                a = F.silu(gate) * value
            case _:
                assert_never(self.kind)
        return linear(a, down.weight, down.bias, onto=onto)


class Around(NamedTuple):
    """The parts of a layer besides its mixer.

    Each sublayer f, mixer or MLP, becomes `x + dropout(f(norm(x)))` (pre) or `norm(x + dropout(f(x)))` (post);
    without `residual` the sum is left out.
    """

    norm: Norm
    dropout: Dropout
    residual: bool = True
    norm_place: Literal["pre", "post"] = "pre"
    mlp: MLP | None = None
    mlp_norm: Norm | None = None

"""One layer of an encoder: what reads the whole input, an MLP after it, and the way around them."""

from typing import Literal, final

import torch
from torch import Tensor, nn

from statewise.core import Described, Encoder, is_observed, observe
from statewise.layers import MLP, Dropout


@final
class EncoderLayer(Described):
    """Each sublayer f is `x + dropout(f(norm(x)))` (pre) or `norm(x + dropout(f(x)))` (post).

    Without `residual` the sum is left out. What stands past a row's end is not looked at, and means nothing.
    """

    def __init__(
        self,
        mixer: Encoder,
        *,
        norm: nn.Module,
        dropout: Dropout,
        residual: bool = True,
        norm_place: Literal["pre", "post"] = "pre",
        mlp: MLP | None = None,
        mlp_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.mixer = mixer
        self.norm = norm
        self.dropout = dropout
        self.residual = residual
        self.norm_place: Literal["pre", "post"] = norm_place
        self.mlp = mlp
        self.mlp_norm = mlp_norm

    def forward(self, x_BTD: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        pre = self.norm_place == "pre"
        y_BTD: Tensor = self.dropout(self.mixer(self.norm(x_BTD) if pre else x_BTD, lengths_B))
        y_BTD = x_BTD + y_BTD if self.residual else y_BTD
        y_BTD = y_BTD if pre else self.norm(y_BTD)
        if self.mlp is None or self.mlp_norm is None:
            return _shown(y_BTD)
        z_BTD: Tensor = self.dropout(self.mlp(self.mlp_norm(y_BTD) if pre else y_BTD))
        z_BTD = y_BTD + z_BTD if self.residual else z_BTD
        return _shown(z_BTD if pre else self.mlp_norm(z_BTD))

    def __call__(self, x_BTD: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        y_BTD: Tensor = super().__call__(x_BTD, lengths_B)
        return y_BTD


def _shown(y_BTD: Tensor) -> Tensor:
    """What a layer hands on, to a lens place by place: units that every encoder has."""
    if not is_observed():
        return y_BTD
    return torch.stack([observe("layer.output", y_BD) for y_BD in y_BTD.unbind(1)], dim=1)

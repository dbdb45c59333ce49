"""One layer of an encoder: what reads the whole input, an MLP after it, and the way around them."""

from typing import final

import torch
from torch import Tensor

from statewise.core import Described, Encoder, is_observed, observe
from statewise.layers import Around


@final
class EncoderLayer(Described):
    """What stands past a row's end is not looked at, and means nothing."""

    def __init__(self, mixer: Encoder, around: Around) -> None:
        super().__init__()
        self.mixer = mixer
        self.norm, self.dropout, self.residual, self.norm_place, self.mlp, self.mlp_norm = around

    def extra_repr(self) -> str:
        return f"residual={self.residual}, norm_place={self.norm_place!r}"

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

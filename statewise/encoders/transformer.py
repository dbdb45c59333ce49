"""The Transformer's encoder (Vaswani et al. 2017): every time step sees every other, layer after layer.

`EncoderLayer` is one layer of any encoder. B batch, T time, D width.
"""

import math
from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Described, Encoder, Stacked, blanked, check_input, is_observed, observe, past_end, scope
from statewise.encoders.attention import MultiHeadAttention
from statewise.kernels import Wish
from statewise.layers import MLP, Around, Dropout, Scheme, make_norm, sinusoid
from statewise.specs import UserError


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


@final
class TransformerEncoder(Encoder, Stacked):
    """`(x, lengths) -> y`, both `[B, T, width]`. With `position="none"` it is a function of a set."""

    def __init__(
        self,
        width: int,
        *,
        depth: int,
        heads: int,
        kv_heads: int | None = None,
        position: Literal["none", "learned", "sinusoidal", "rotary", "alibi"] = "sinusoidal",
        context: int = 1024,
        rotary_base: float = 10_000.0,
        norm: Literal["none", "layer", "rms"] = "layer",
        norm_epsilon: float | None = None,
        norm_place: Literal["pre", "post"] = "pre",
        residual: bool = True,
        mlp: Literal["none", "relu", "gelu", "swiglu"] = "gelu",
        mlp_ratio: float = 4.0,
        bias: bool = True,
        dropout: float = 0.0,
        input_dropout: float | None = None,
        attention_dropout: float = 0.0,
        variational: bool = False,
        init: Scheme = "orthogonal",
        kernel: Wish = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.input_width = width
        self.output_width = width
        self.position: Literal["none", "learned", "sinusoidal", "rotary", "alibi"] = position
        # After the positions; as much as everywhere else, if nothing was said.
        self.dropout = Dropout(dropout if input_dropout is None else input_dropout, variational=variational)
        self.weight_PD = nn.Parameter(torch.empty(context, width)) if position == "learned" else None
        if self.weight_PD is not None:
            nn.init.normal_(self.weight_PD, std=1 / math.sqrt(width), generator=generator)
        hidden = max(1, round(mlp_ratio * width))
        self.layers = nn.ModuleList(
            EncoderLayer(
                MultiHeadAttention(
                    width,
                    heads=heads,
                    kv_heads=kv_heads,
                    bias=bias,
                    dropout=attention_dropout,
                    position=position if position in ("rotary", "alibi") else "none",
                    rotary_base=rotary_base,
                    init=init,
                    kernel=kernel,
                    generator=generator,
                ),
                Around(
                    make_norm(norm, width, epsilon=norm_epsilon),
                    Dropout(dropout, variational=variational),
                    residual,
                    norm_place,
                    None if mlp == "none" else MLP(width, hidden=hidden, kind=mlp, bias=bias, generator=generator),
                    None if mlp == "none" else make_norm(norm, width, epsilon=norm_epsilon),
                ),
            )
            for _ in range(depth)
        )
        last: Literal["none", "layer", "rms"] = norm if residual and norm_place == "pre" else "none"
        self.final_norm = make_norm(last, width, epsilon=norm_epsilon)

    def stacked(self) -> dict[str, list[int]]:
        return {"weight_PD": []}

    def forward(self, x_BTD: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        check_input(x_BTD, lengths_B, width=self.input_width)
        if lengths_B is not None:
            x_BTD = blanked(x_BTD, lengths_B)
        x_BTD = self.dropout(self.placed(x_BTD))
        for number, layer in enumerate(self.layers):
            with scope(f"encoder.{number}"):
                x_BTD = layer(x_BTD, lengths_B)
        return past_end(self.final_norm(x_BTD), lengths_B)

    def placed(self, x_BTD: Tensor) -> Tensor:
        """The input with the vectors of its positions added, where positions have vectors."""
        at_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
        if self.position == "sinusoidal":
            return x_BTD + sinusoid(at_T, self.input_width, like=x_BTD)
        if self.weight_PD is None:
            return x_BTD
        if at_T.shape[0] > len(self.weight_PD):
            raise UserError(
                f"an input of {at_T.shape[0]} is longer than the {len(self.weight_PD)} positions that have vectors",
                fix="make `context` larger, or choose another position",
            )
        return x_BTD + F.embedding(at_T, self.weight_PD)

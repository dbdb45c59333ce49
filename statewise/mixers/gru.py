"""The gated recurrent unit (Cho et al. 2014): the state is a vector that a gate lets through unchanged."""

from typing import Literal, NamedTuple, Unpack, final

import torch
from torch import Tensor, nn

from statewise.core import Stacked, state_type
from statewise.kernels import Choice
from statewise.kernels.few_rows import linear
from statewise.kernels.gru import GRUWeights, choice, gru, gru_step
from statewise.layers import drop
from statewise.mixers.recurrent import MixerOptions, VectorMixer


@state_type
class GRUState(NamedTuple):
    h_BD: Tensor


@final
class GRU(VectorMixer[GRUState], Stacked):
    """`h' = (1 - z) · n + z · h`; the reset gate acts after the recurrent product (cuDNN) or before (Cho).

    `init="published"` is Cho's: orthogonal recurrence, inputs from a normal of deviation 0.01.

    >>> mixer = sw.GRU(16)
    >>> y, state = mixer(torch.randn(2, 7, 16))
    >>> state
    GRUState(h_BD=[2, 16] float32; 128 bytes)
    """

    make_state = GRUState

    def __init__(
        self,
        width: int,
        *,
        reset: Literal["after", "before"] = "after",
        weight_drop: float = 0.0,
        zoneout: float = 0.0,
        **options: Unpack[MixerOptions],
    ) -> None:
        fill = self.prepare(width, **options)
        self.weight_drop = weight_drop
        self.zoneout = zoneout
        self.w_GI = nn.Parameter(torch.empty(3 * width, self.input_width))
        self.u_GD = nn.Parameter(torch.empty(3 * width, width))
        self.b_G = nn.Parameter(torch.zeros(3 * width))
        self.b_u_D = nn.Parameter(torch.zeros(width)) if reset == "after" else None
        fill.input(self.w_GI, gates=3)
        fill.recurrent(self.u_GD, gates=3)
        if fill.scheme == "published":
            nn.init.normal_(self.w_GI, std=0.01, generator=fill.generator)

    def stacked(self) -> dict[str, list[int]]:
        return {"w_GI": [self.output_width] * 3, "u_GD": [self.output_width] * 3}

    def weights(self) -> GRUWeights:
        u_GD = drop(self.u_GD, self.weight_drop, training=self.training)
        return GRUWeights(self.w_GI, u_GD, self.b_G, self.b_u_D, self.zoneout, self.training)

    def choice(self) -> Choice:
        return choice(self.weights(), wish=self.kernel)

    def _read(self, x_BTI: Tensor, h_BD: Tensor | None, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
        return gru(x_BTI, h_BD, self.weights(), lengths_B, wish=self.kernel)

    def _step(self, x_BI: Tensor, h_BD: Tensor) -> Tensor:
        return gru_step(linear(x_BI, self.w_GI, self.b_G), h_BD, self.weights())

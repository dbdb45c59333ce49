"""The Elman network (1990): the state is a vector, rewritten at every step."""

from typing import NamedTuple, Unpack, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import state_type
from statewise.kernels import Choice
from statewise.kernels.elman import Activation, ElmanWeights, choice, elman, elman_step
from statewise.layers import drop
from statewise.mixers.recurrent import MixerOptions, VectorMixer


@state_type
class ElmanState(NamedTuple):
    h_BD: Tensor


@final
class Elman(VectorMixer[ElmanState]):
    """`h_t = φ(W x_t + U h_{t-1} + b)`, `y_t = h_t`; φ is tanh or relu.

    `init="published"` with relu starts the recurrence at the identity (Le, Jaitly and Hinton 2015).

    >>> mixer = sw.Elman(16)
    >>> y, state = mixer(torch.randn(2, 7, 16))
    >>> state
    ElmanState(h_BD=[2, 16] float32; 128 bytes)
    """

    make_state = ElmanState

    def __init__(
        self,
        width: int,
        *,
        activation: Activation = "tanh",
        weight_drop: float = 0.0,
        zoneout: float = 0.0,
        **options: Unpack[MixerOptions],
    ) -> None:
        fill = self.prepare(width, **options)
        self.activation: Activation = activation
        self.weight_drop = weight_drop
        self.zoneout = zoneout
        self.w_DI = nn.Parameter(torch.empty(width, self.input_width))
        self.u_DD = nn.Parameter(torch.empty(width, width))
        self.b_D = nn.Parameter(torch.zeros(width))
        fill.input(self.w_DI)
        fill.recurrent(self.u_DD)
        if fill.scheme == "published" and activation == "relu":
            nn.init.eye_(self.u_DD)

    def weights(self) -> ElmanWeights:
        u_DD = drop(self.u_DD, self.weight_drop, training=self.training)
        return ElmanWeights(self.w_DI, u_DD, self.b_D, self.activation, self.zoneout, self.training)

    def choice(self) -> Choice:
        return choice(self.weights(), wish=self.kernel)

    def _read(self, x_BTI: Tensor, h_BD: Tensor | None, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
        return elman(x_BTI, h_BD, self.weights(), lengths_B, wish=self.kernel)

    def _step(self, x_BI: Tensor, h_BD: Tensor) -> Tensor:
        return elman_step(F.linear(x_BI, self.w_DI, self.b_D), h_BD, self.weights())

"""Long short-term memory (Hochreiter and Schmidhuber 1997): the state is a pair, one of them additive."""

from typing import NamedTuple, Unpack, final

import torch
from torch import Tensor, nn

from statewise.core import Stacked, check_input, state_type
from statewise.kernels import Choice
from statewise.kernels.lstm import LSTMNorm, LSTMWeights, choice, lstm, lstm_step, project_input
from statewise.layers import drop
from statewise.mixers.recurrent import KernelMixer, MixerOptions


@state_type
class LSTMState(NamedTuple):
    h_BP: Tensor
    c_BD: Tensor


@final
class LSTM(KernelMixer[LSTMState], Stacked):
    """`c' = f·c + i·g`, `h' = o·tanh c'`: what the cell holds passes on by a product with f alone.

    `forget_bias` (Gers et al. 2000) is the initial bias of f. `peephole`: gates see the cell.
    `projection`: a narrower output (Sak et al. 2014). `layer_norm`: inside the recurrence (Ba et al.
    2016). `coupled`: i = 1 - f. `weight_drop`: dropout on U (Merity et al. 2018). `zoneout`: Krueger
    et al. 2016. `init="published"` draws all weights uniformly in ±0.08 (Sutskever et al. 2014).

    >>> mixer = sw.LSTM(16)
    >>> y, state = mixer(torch.randn(2, 7, 16))
    >>> state
    LSTMState(h_BP=[2, 16] float32, c_BD=[2, 16] float32; 256 bytes)
    """

    def __init__(
        self,
        width: int,
        *,
        peephole: bool = False,
        projection: int | None = None,
        layer_norm: bool = False,
        coupled: bool = False,
        forget_bias: float = 1.0,
        weight_drop: float = 0.0,
        zoneout: float = 0.0,
        **options: Unpack[MixerOptions],
    ) -> None:
        fill = self.prepare(width, projection, **options)
        self.width = width
        self.coupled = coupled
        self.weight_drop = weight_drop
        self.zoneout = zoneout
        self.gates = gates = 3 if coupled else 4
        self.w_GI = nn.Parameter(torch.empty(gates * width, self.input_width))
        self.u_GP = nn.Parameter(torch.empty(gates * width, self.output_width))
        self.b_G = nn.Parameter(torch.zeros(gates * width))
        self.peephole = nn.Parameter(torch.zeros(gates - 1, width)) if peephole else None
        self.projection_PD = nn.Parameter(torch.empty(projection, width)) if projection else None
        self.norm_input_G = nn.Parameter(torch.ones(gates * width)) if layer_norm else None
        self.norm_recurrent_G = nn.Parameter(torch.ones(gates * width)) if layer_norm else None
        self.norm_cell_D = nn.Parameter(torch.ones(width)) if layer_norm else None
        self.norm_cell_bias_D = nn.Parameter(torch.zeros(width)) if layer_norm else None

        fill.input(self.w_GI, gates=gates)
        fill.recurrent(self.u_GP, gates=gates)
        if self.projection_PD is not None:
            # Turned, so that scales are taken from the width it reads, as torch.nn does.
            fill.recurrent(self.projection_PD.mT)
        if fill.scheme == "published":
            for weight in (self.w_GI, self.u_GP, self.projection_PD):
                if weight is not None:
                    nn.init.uniform_(weight, -0.08, 0.08, generator=fill.generator)
        forget = gates - 3
        with torch.no_grad():
            self.b_G[forget * width : (forget + 1) * width] = forget_bias

    def stacked(self) -> dict[str, list[int]]:
        return {"w_GI": [self.width] * self.gates, "u_GP": [self.width] * self.gates, "peephole": []}

    def init_state(self, batch: int) -> LSTMState:
        return LSTMState(self.like.new_zeros(batch, self.output_width), self.like.new_zeros(batch, self.width))

    def weights(self) -> LSTMWeights:
        norm = None
        if self.norm_input_G is not None:
            assert self.norm_recurrent_G is not None
            assert self.norm_cell_D is not None
            assert self.norm_cell_bias_D is not None
            norm = LSTMNorm(self.norm_input_G, self.norm_recurrent_G, self.norm_cell_D, self.norm_cell_bias_D)
        return LSTMWeights(
            self.w_GI,
            drop(self.u_GP, self.weight_drop, training=self.training),
            self.b_G,
            self.peephole,
            self.projection_PD,
            norm,
            self.coupled,
            self.zoneout,
            self.training,
        )

    def choice(self) -> Choice:
        return choice(self.weights(), wish=self.kernel)

    def forward(
        self, x_BTI: Tensor, state: LSTMState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, LSTMState]:
        check_input(x_BTI, lengths_B, width=self.input_width)
        h_BP, c_BD = state or (None, None)
        y_BTP, h_BP, c_BD = lstm(x_BTI, h_BP, c_BD, self.weights(), lengths_B, wish=self.kernel)
        return y_BTP, LSTMState(h_BP, c_BD)

    def step(self, x_BI: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        weights = self.weights()
        h_BP, c_BD = lstm_step(project_input(x_BI, weights), *state, weights)
        return h_BP, LSTMState(h_BP, c_BD)

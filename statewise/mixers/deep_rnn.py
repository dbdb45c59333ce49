"""The deep recurrent network (Pascanu et al. 2014): layers in each of the three places where Elman has one.

B batch, T time, I input width, D width, L layers of the transition.
"""

from typing import NamedTuple, Unpack, final

import torch
from torch import Tensor, nn

from statewise.core import Stacked, check_input, past_end, state_type
from statewise.kernels import Choice
from statewise.kernels.deep_rnn import TransitionWeights, choice, transition, transition_step
from statewise.kernels.elman import Activation
from statewise.layers import Filler, unfilled_linear
from statewise.mixers.recurrent import KernelMixer, MixerOptions
from statewise.specs import UserError


@state_type
class DeepRNNState(NamedTuple):
    h_BD: Tensor


@final
class DeepRNN(KernelMixer[DeepRNNState], Stacked):
    """`h_t = transition(W in(x_t) + b, h_{t-1})`, `y_t = out(h_t)`.

    Each depth counts layers on the way: `input_depth` from the input to the state, `transition_depth`
    from one state to the next, `output_depth` from the state to what the head gives (the head is the
    last of them). With `skip` the old state also reaches the transition's last layer directly, so that the
    way through time is one layer a step however deep the transition is. At depth one everywhere this is
    Elman's network.
    """

    def __init__(
        self,
        width: int,
        *,
        input_depth: int = 2,
        transition_depth: int = 2,
        output_depth: int = 2,
        skip: bool = True,
        activation: Activation = "tanh",
        **options: Unpack[MixerOptions],
    ) -> None:
        fill = self.prepare(width, **options)
        for name, depth in (("input", input_depth), ("transition", transition_depth), ("output", output_depth)):
            if depth < 1:
                raise UserError(f"{name}_depth = {depth} is not valid, expected 1 or more")
        self.activation: Activation = activation
        widths = [self.input_width] + [width] * (input_depth - 1)
        self.inputs = nn.ModuleList(_linear(i, width, fill) for i in widths[:-1])
        self.last_input = _linear(widths[-1], width, fill)
        self.u_LDD = nn.Parameter(torch.empty(transition_depth, width, width))
        self.b_KD = nn.Parameter(torch.zeros(transition_depth - 1, width)) if transition_depth > 1 else None
        deep_skip = skip and transition_depth > 1
        self.skip_DD = nn.Parameter(torch.empty(width, width)) if deep_skip else None
        for u_DD in self.u_LDD.detach().unbind():
            fill.recurrent(u_DD)
        if self.skip_DD is not None:
            fill.recurrent(self.skip_DD)
        self.outputs = nn.ModuleList(_linear(width, width, fill) for _ in range(output_depth - 1))

    def stacked(self) -> dict[str, list[int]]:
        return {"b_KD": []}

    def init_state(self, batch: int) -> DeepRNNState:
        return DeepRNNState(self.like.new_zeros(batch, self.output_width))

    def weights(self) -> TransitionWeights:
        b_KD = self.u_LDD.new_empty(0, self.output_width) if self.b_KD is None else self.b_KD
        return TransitionWeights(self.u_LDD, b_KD, self.skip_DD, self.activation)

    def choice(self) -> Choice:
        return choice(wish=self.kernel)

    def _read(self, x: Tensor) -> Tensor:
        """The projected input; it does not depend on time, so all time steps are one product a layer."""
        share: Tensor = self.last_input(self._through(self.inputs, x))
        return share

    def _through(self, layers: nn.ModuleList, z: Tensor) -> Tensor:
        phi = torch.tanh if self.activation == "tanh" else torch.relu
        for layer in layers:
            z = phi(layer(z))
        return z

    def forward(
        self, x_BTI: Tensor, state: DeepRNNState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, DeepRNNState]:
        check_input(x_BTI, lengths_B, width=self.input_width)
        self.choice()  # refuses a wish that cannot be met
        (h_BD,) = state or self.init_state(x_BTI.shape[0])
        h_BTD, h_BD = transition(self._read(x_BTI), h_BD, self.weights(), lengths_B)
        # The layers above have biases, so that past the end they would not be silent.
        return past_end(self._through(self.outputs, h_BTD), lengths_B), DeepRNNState(h_BD)

    def step(self, x_BI: Tensor, state: DeepRNNState) -> tuple[Tensor, DeepRNNState]:
        h_BD = transition_step(self._read(x_BI), state.h_BD, self.weights())
        return self._through(self.outputs, h_BD), DeepRNNState(h_BD)


def _linear(inputs: int, outputs: int, fill: Filler) -> nn.Linear:
    linear = unfilled_linear(inputs, outputs)
    fill.input(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear

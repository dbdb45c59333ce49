"""The autoregressive window (Yule 1927; with an MLP, Bengio et al. 2003): the state is the last few inputs."""

from typing import NamedTuple, Unpack, final

import torch
from torch import Tensor, nn

from statewise.core import check_input, state_type
from statewise.kernels import Choice, extend
from statewise.kernels.window import Activation, WindowWeights, choice, window, window_step
from statewise.mixers.recurrent import KernelMixer, MixerOptions


@state_type
class WindowState(NamedTuple):
    past_BSI: Tensor  # the last K - 1 inputs, the oldest first; zeros before the beginning


@final
class Window(KernelMixer[WindowState]):
    """`y_t = V φ(W [x_{t-K+1}; …; x_t] + b) + c`: `order` K is how many inputs it sees, the present one included.

    With `activation="linear"` and real values it is the autoregressive model AR(K) of statistics. Behind an
    embedding it is the neural language model of Bengio et al. 2003, whose φ is tanh.
    """

    def __init__(
        self,
        width: int,
        *,
        order: int = 8,
        hidden: int | None = None,
        activation: Activation = "tanh",
        **options: Unpack[MixerOptions],
    ) -> None:
        fill = self.prepare(width, **options)
        self.order = order
        self.activation: Activation = activation
        hidden = hidden or width
        self.w_HIK = nn.Parameter(torch.empty(hidden, self.input_width, order))
        self.b_H = nn.Parameter(torch.zeros(hidden))
        self.v_DH = nn.Parameter(torch.empty(width, hidden))
        self.c_D = nn.Parameter(torch.zeros(width))
        # As one matrix on the whole window, so that scales are taken from all that is read.
        fill.input(self.w_HIK.view(hidden, -1))
        fill.input(self.v_DH)

    def init_state(self, batch: int) -> WindowState:
        return WindowState(self.like.new_zeros(batch, self.order - 1, self.input_width))

    def weights(self) -> WindowWeights:
        return WindowWeights(self.w_HIK, self.b_H, self.v_DH, self.c_D, self.activation)

    def choice(self) -> Choice:
        return choice(wish=self.kernel)

    def forward(
        self, x_BTI: Tensor, state: WindowState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, WindowState]:
        check_input(x_BTI, lengths_B, width=self.input_width)
        (past_BSI,) = state or self.init_state(x_BTI.shape[0])
        y_BTD, past_BSI = window(x_BTI, past_BSI, self.weights(), lengths_B, wish=self.kernel)
        return y_BTD, WindowState(past_BSI)

    def absorb(self, x_BTI: Tensor, state: WindowState | None = None, lengths_B: Tensor | None = None) -> WindowState:
        check_input(x_BTI, lengths_B, width=self.input_width)
        (past_BSI,) = state or self.init_state(x_BTI.shape[0])
        return WindowState(extend(past_BSI, x_BTI, lengths_B)[1])

    def step(self, x_BI: Tensor, state: WindowState) -> tuple[Tensor, WindowState]:
        y_BD, past_BSI = window_step(x_BI, state.past_BSI, self.weights())
        return y_BD, WindowState(past_BSI)

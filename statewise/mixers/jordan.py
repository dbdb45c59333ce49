"""The output-recurrent network (Jordan 1986): the state is the last output.

B batch, T time, I input width, D hidden width, O output width.
"""

from typing import NamedTuple, Unpack, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import check_input, state_type
from statewise.kernels import Choice
from statewise.kernels.elman import Activation
from statewise.kernels.jordan import JordanWeights, choice, jordan, jordan_forced, jordan_step
from statewise.mixers.recurrent import MixerOptions, VectorMixer
from statewise.specs import UserError


@state_type
class JordanState(NamedTuple):
    o_BO: Tensor


@final
class Jordan(VectorMixer[JordanState]):
    """`h_t = φ(W x_t + R o_{t-1} + b)`, `o_t = V h_t + c`, `y_t = o_t`.

    `forward` and `step` run freely: the network's own output comes back. `forced` is told the true
    outputs; then nothing has to pass through time, and all time steps are computed, and trained, at once.
    """

    make_state = JordanState

    def __init__(
        self, width: int, *, output: int | None = None, activation: Activation = "tanh", **options: Unpack[MixerOptions]
    ) -> None:
        fill = self.prepare(width, output, **options)
        self.activation: Activation = activation
        self.w_DI = nn.Parameter(torch.empty(width, self.input_width))
        self.r_DO = nn.Parameter(torch.empty(width, self.output_width))
        self.b_D = nn.Parameter(torch.zeros(width))
        self.v_OD = nn.Parameter(torch.empty(self.output_width, width))
        self.c_O = nn.Parameter(torch.zeros(self.output_width))
        for weight in (self.w_DI, self.r_DO, self.v_OD):
            fill.input(weight)

    def weights(self) -> JordanWeights:
        return JordanWeights(self.w_DI, self.r_DO, self.b_D, self.v_OD, self.c_O, self.activation)

    def choice(self) -> Choice:
        return choice(wish=self.kernel)

    def _read(self, x_BTI: Tensor, o_BO: Tensor | None, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
        self.choice()  # refuses a wish that cannot be met
        o_BO = self.init_state(len(x_BTI)).o_BO if o_BO is None else o_BO
        return jordan(x_BTI, o_BO, self.weights(), lengths_B)

    def _step(self, x_BI: Tensor, o_BO: Tensor) -> Tensor:
        return jordan_step(F.linear(x_BI, self.w_DI, self.b_D), o_BO, self.weights())

    def forced(self, x_BTI: Tensor, truth_BTO: Tensor, state: JordanState | None = None) -> tuple[Tensor, JordanState]:
        """Outputs when at every time step the true output of the time step before came back, all at once.

        The state handed on holds the last true output, as if each step had been corrected after it.
        """
        check_input(x_BTI, None, width=self.input_width)
        if truth_BTO.shape != (*x_BTI.shape[:2], self.output_width):
            wanted = [*x_BTI.shape[:2], self.output_width]
            raise UserError(f"the true outputs have shape {list(truth_BTO.shape)}, expected {wanted}")
        (o_BO,) = state or self.init_state(x_BTI.shape[0])
        return jordan_forced(x_BTI, truth_BTO, o_BO, self.weights()), JordanState(truth_BTO[:, -1])

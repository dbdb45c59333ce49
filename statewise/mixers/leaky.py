"""Leaky integrator units (Mozer 1992): each unit keeps a share of what it held, so each has a time scale of its own."""

from typing import Literal, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Mixer, check_input, state_type
from statewise.kernels import Choice, Wish
from statewise.kernels.elman import Activation
from statewise.kernels.leaky import LeakyWeights, choice, leaky, leaky_step
from statewise.layers import Scheme, fill_input, fill_recurrent
from statewise.specs import UserError


@state_type
class LeakyState(NamedTuple):
    h_BD: Tensor


@final
class Leaky(Mixer[LeakyState]):
    """`h_t = α · h_{t-1} + (1 - α) · φ(W x_t + U h_{t-1} + b)`, `y_t = h_t`.

    `leak="learned"`: α is the sigmoid of a parameter per unit, and `alpha` is where it starts;
    `leak="fixed"`: it stays there. Without `alpha` the units start spread from short memories to long
    ones. At α = 0 this is Elman's network; a unit forgets to 1/e in `-1 / log α` steps.
    """

    alpha_D: Tensor

    def __init__(
        self,
        width: int,
        *,
        input_width: int | None = None,
        leak: Literal["learned", "fixed"] = "learned",
        alpha: float | None = None,
        activation: Activation = "tanh",
        init: Scheme = "orthogonal",
        kernel: Wish = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if alpha is not None and not (0 < alpha < 1 or (alpha == 0 and leak == "fixed")):
            raise UserError(f"alpha = {alpha} is not valid with a {leak} leak", fix="choose it between 0 and 1")
        self.input_width = input_width or width
        self.output_width = width
        self.activation: Activation = activation
        self.leak: Literal["learned", "fixed"] = leak
        self.kernel: Wish = kernel
        self.w_DI = nn.Parameter(torch.empty(width, self.input_width))
        self.u_DD = nn.Parameter(torch.empty(width, width))
        self.b_D = nn.Parameter(torch.zeros(width))
        fill_input(self.w_DI, gates=1, scheme=init, generator=generator)
        fill_recurrent(self.u_DD, gates=1, scheme=init, generator=generator)
        logit_D = torch.linspace(-3, 3, width)
        if leak == "learned":
            self.logit_D = nn.Parameter(logit_D if alpha is None else torch.full((width,), alpha).logit())
        else:
            fixed_D = logit_D.sigmoid() if alpha is None else torch.full((width,), alpha)
            self.register_buffer("alpha_D", fixed_D, persistent=False)  # a function of the options: nothing to save

    def init_state(self, batch: int) -> LeakyState:
        return LeakyState(self.like.new_zeros(batch, self.output_width))

    def weights(self) -> LeakyWeights:
        alpha_D = torch.sigmoid(self.logit_D) if self.leak == "learned" else self.alpha_D
        return LeakyWeights(self.w_DI, self.u_DD, self.b_D, alpha_D, self.activation)

    def choice(self) -> Choice:
        """Which implementation `forward` will run, and why."""
        return choice(wish=self.kernel)

    def forward(
        self, x_BTI: Tensor, state: LeakyState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, LeakyState]:
        check_input(x_BTI, lengths_B, width=self.input_width)
        self.choice()  # refuses a wish that cannot be met
        (h_BD,) = state or self.init_state(x_BTI.shape[0])
        y_BTD, h_BD = leaky(x_BTI, h_BD, self.weights(), lengths_B)
        return y_BTD, LeakyState(h_BD)

    def step(self, x_BI: Tensor, state: LeakyState) -> tuple[Tensor, LeakyState]:
        h_BD = leaky_step(F.linear(x_BI, self.w_DI, self.b_D), state.h_BD, self.weights())
        return h_BD, LeakyState(h_BD)

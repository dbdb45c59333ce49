"""Leaky integrator units (Mozer 1992): each unit keeps a share of what it held, so each has a time scale of its own."""

from abc import abstractmethod
from typing import Literal, NamedTuple, TypeVar, Unpack, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import state_type
from statewise.kernels import Choice
from statewise.kernels.elman import Activation
from statewise.kernels.leaky import LeakyWeights, choice, leaky, leaky_step
from statewise.mixers.recurrent import MixerOptions, VectorMixer
from statewise.specs import UserError

V = TypeVar("V", bound=tuple[Tensor])


class LeakyIntegrator(VectorMixer[V]):
    """The recurrence `h_t = α · h_{t-1} + (1 - α) · φ(W x_t + U h_{t-1} + b)`, `y_t = h_t`, of any weights."""

    w_DI: nn.Parameter
    b_D: nn.Parameter

    @abstractmethod
    def weights(self) -> LeakyWeights: ...

    def choice(self) -> Choice:
        return choice(wish=self.kernel)

    def _read(self, x_BTI: Tensor, h_BD: Tensor | None, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
        self.choice()  # refuses a wish that cannot be met
        h_BD = self.init_state(len(x_BTI))[0] if h_BD is None else h_BD
        return leaky(x_BTI, h_BD, self.weights(), lengths_B)

    def _step(self, x_BI: Tensor, h_BD: Tensor) -> Tensor:
        return leaky_step(F.linear(x_BI, self.w_DI, self.b_D), h_BD, self.weights())


@state_type
class LeakyState(NamedTuple):
    h_BD: Tensor


@final
class Leaky(LeakyIntegrator[LeakyState]):
    """`h_t = α · h_{t-1} + (1 - α) · φ(W x_t + U h_{t-1} + b)`, `y_t = h_t`.

    `leak="learned"`: α is the sigmoid of a parameter per unit, and `alpha` is where it starts;
    `leak="fixed"`: it stays there. Without `alpha` the units start spread from short memories to long
    ones. At α = 0 this is Elman's network; a unit forgets to 1/e in `-1 / log α` steps.
    """

    make_state = LeakyState
    alpha_D: Tensor

    def __init__(
        self,
        width: int,
        *,
        leak: Literal["learned", "fixed"] = "learned",
        alpha: float | None = None,
        activation: Activation = "tanh",
        **options: Unpack[MixerOptions],
    ) -> None:
        fill = self.prepare(width, **options)
        if alpha is not None and not (0 < alpha < 1 or (alpha == 0 and leak == "fixed")):
            raise UserError(f"alpha = {alpha} is not valid with a {leak} leak", fix="choose it between 0 and 1")
        self.activation: Activation = activation
        self.leak: Literal["learned", "fixed"] = leak
        self.w_DI = nn.Parameter(torch.empty(width, self.input_width))
        self.u_DD = nn.Parameter(torch.empty(width, width))
        self.b_D = nn.Parameter(torch.zeros(width))
        fill.input(self.w_DI)
        fill.recurrent(self.u_DD)
        logit_D = torch.linspace(-3, 3, width)
        if leak == "learned":
            self.logit_D = nn.Parameter(logit_D if alpha is None else torch.full((width,), alpha).logit())
        else:
            fixed_D = logit_D.sigmoid() if alpha is None else torch.full((width,), alpha)
            self.register_buffer("alpha_D", fixed_D, persistent=False)  # a function of the options: nothing to save

    def weights(self) -> LeakyWeights:
        alpha_D = torch.sigmoid(self.logit_D) if self.leak == "learned" else self.alpha_D
        return LeakyWeights(self.w_DI, self.u_DD, self.b_D, alpha_D, self.activation)

"""The echo-state network (Jaeger 2001): a random recurrence that is never trained, read by a trained head."""

from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from statewise.core import is_known, state_type
from statewise.kernels import Wish
from statewise.kernels.leaky import LeakyWeights
from statewise.layers import Filler, Scheme, are_read_later
from statewise.mixers.leaky import LeakyIntegrator
from statewise.specs import UserError


@state_type
class ReservoirState(NamedTuple):
    h_BD: Tensor


@final
class Reservoir(LeakyIntegrator[ReservoirState]):
    """`h_t = α · h_{t-1} + (1 - α) · tanh(W x_t + U h_{t-1} + b)`, with W, U and b drawn once and fixed.

    U is scaled so that its largest eigenvalue has the absolute value `radius`: below 1 the influence of
    the first state fades (the echo-state property), near 1 it fades slowly. `density`: share of U's
    entries that are not 0. `init="published"` draws them from a normal distribution. What is fixed is
    saved with the model like any weight, and has no gradient.
    """

    make_state = ReservoirState

    def __init__(
        self,
        width: int,
        *,
        radius: float = 0.9,
        density: float = 0.2,
        alpha: float = 0.0,
        input_scale: float = 1.0,
        input_width: int | None = None,
        init: Scheme = "published",
        kernel: Wish = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        fill = self.prepare(width, input_width=input_width, init=init, kernel=kernel, generator=generator)
        for name, value, good in (
            ("radius", radius, radius > 0),
            ("density", density, 0 < density <= 1),
            ("alpha", alpha, 0 <= alpha < 1),
        ):
            if not good:
                raise UserError(f"{name} = {value} is not valid for a reservoir")
        self.alpha = alpha
        w_DI = torch.empty(width, self.input_width)
        fill.input(w_DI)
        # Frozen parameters and not buffers: whatever saves, averages, moves or counts weights sees them.
        self.w_DI = nn.Parameter(input_scale * w_DI, requires_grad=False)
        self.u_DD = nn.Parameter(_recurrence(width, radius, density, fill), requires_grad=False)
        b_D = torch.empty(width).uniform_(-0.2, 0.2, generator=fill.generator)
        self.b_D = nn.Parameter(b_D * input_scale, requires_grad=False)

    def weights(self) -> LeakyWeights:
        return LeakyWeights(self.w_DI, self.u_DD, self.b_D, self.u_DD.new_full((), self.alpha))

    def radius(self) -> float:
        """The spectral radius of U, measured."""
        return spectral_radius(self.u_DD)


def spectral_radius(u_DD: Tensor) -> float:
    """The largest absolute value of an eigenvalue."""
    return float(torch.linalg.eigvals(u_DD.detach().double()).abs().max())


def _recurrence(width: int, radius: float, density: float, fill: Filler) -> Tensor:
    """A random matrix of exactly this spectral radius."""
    u_DD = torch.empty(width, width)
    for _ in range(100):
        if fill.scheme == "published":
            nn.init.normal_(u_DD, generator=fill.generator)
        else:
            fill.recurrent(u_DD)
        u_DD *= torch.rand(width, width, generator=fill.generator) < density
        if are_read_later() or not is_known(u_DD):  # only its shape is asked for
            return u_DD
        drawn = spectral_radius(u_DD)
        if drawn > 1e-3:  # a small sparse matrix may have no cycle at all; such a draw remembers nothing
            return u_DD * (radius / drawn)
    raise UserError(
        f"a recurrence of {width} units at density {density} has no cycle in 100 draws", fix="choose a larger density"
    )

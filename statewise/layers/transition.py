"""Ways to get from one summary of the past to the next: `h' = g(h, x)`, modules without time.

B batch, I input width, D width, H hidden.
"""

from typing import Literal, assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Described, Stacked
from statewise.layers.initialise import Filler

TransitionName = Literal["elman", "mlp", "gated"]


class ElmanTransition(Described):
    """`h' = tanh(W x + U h + b)`: the simplest g with a memory."""

    def __init__(self, width: int, input_width: int, *, fill: Filler) -> None:
        super().__init__()
        self.w_DI = nn.Parameter(torch.empty(width, input_width))
        self.u_DD = nn.Parameter(torch.empty(width, width))
        self.b_D = nn.Parameter(torch.zeros(width))
        fill.input(self.w_DI)
        fill.recurrent(self.u_DD)

    def forward(self, h_BD: Tensor, x_BI: Tensor) -> Tensor:
        return torch.tanh(F.linear(x_BI, self.w_DI, self.b_D) + h_BD @ self.u_DD.mT)


class MLPTransition(Described):
    """`h' = tanh(V tanh(W x + U h + b) + c)`: a deep transition (Pascanu et al. 2014)."""

    def __init__(self, width: int, input_width: int, *, hidden: int | None = None, fill: Filler) -> None:
        super().__init__()
        hidden = hidden or width
        self.w_HI = nn.Parameter(torch.empty(hidden, input_width))
        self.u_HD = nn.Parameter(torch.empty(hidden, width))
        self.b_H = nn.Parameter(torch.zeros(hidden))
        self.v_DH = nn.Parameter(torch.empty(width, hidden))
        self.c_D = nn.Parameter(torch.zeros(width))
        fill.input(self.w_HI)
        for weight in (self.u_HD, self.v_DH):
            fill.recurrent(weight)

    def forward(self, h_BD: Tensor, x_BI: Tensor) -> Tensor:
        a_BH = torch.tanh(F.linear(x_BI, self.w_HI, self.b_H) + h_BD @ self.u_HD.mT)
        return torch.tanh(F.linear(a_BH, self.v_DH, self.c_D))


class GatedTransition(Described, Stacked):
    """`h' = (1 - z)·n + z·h`, `n = tanh(W_n x + U_n (r·h) + b_n)`, gates r and z by σ: Cho et al. 2014.

    The rows of the matrices stand in the order r, z, n.
    """

    def __init__(self, width: int, input_width: int, *, fill: Filler) -> None:
        super().__init__()
        self.width = width
        self.w_GI = nn.Parameter(torch.empty(3 * width, input_width))
        self.u_GD = nn.Parameter(torch.empty(3 * width, width))
        self.b_G = nn.Parameter(torch.zeros(3 * width))
        fill.input(self.w_GI, gates=3)
        fill.recurrent(self.u_GD, gates=3)

    def stacked(self) -> dict[str, list[int]]:
        return {"w_GI": [self.width] * 3, "u_GD": [self.width] * 3}

    def forward(self, h_BD: Tensor, x_BI: Tensor) -> Tensor:
        width = h_BD.shape[-1]
        a_r, a_z, a_n = F.linear(x_BI, self.w_GI, self.b_G).chunk(3, dim=-1)
        u_r, u_z = (h_BD @ self.u_GD[: 2 * width].mT).chunk(2, dim=-1)
        r_BD, z_BD = torch.sigmoid(a_r + u_r), torch.sigmoid(a_z + u_z)
        n_BD = torch.tanh(a_n + (r_BD * h_BD) @ self.u_GD[2 * width :].mT)
        return (1 - z_BD) * n_BD + z_BD * h_BD


def make_transition(
    name: TransitionName, width: int, input_width: int, *, hidden: int | None = None, fill: Filler
) -> nn.Module:
    """A transition by name; `hidden` is the MLP's own."""
    match name:
        case "elman":
            return ElmanTransition(width, input_width, fill=fill)
        case "mlp":
            return MLPTransition(width, input_width, hidden=hidden, fill=fill)
        case "gated":
            return GatedTransition(width, input_width, fill=fill)
        case _:
            assert_never(name)

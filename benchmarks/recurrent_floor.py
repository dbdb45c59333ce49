"""Only the products that a recurrent layer cannot avoid: a lower bound for implementations with one product per step.

B batch, T time, N both, I input width, D width, G all gates.
"""

from collections.abc import Callable

import torch
from recurrent_case import CELLS, Case
from torch import Tensor


def products(case: Case, x_TBI: Tensor) -> dict[str, Callable[[], object]]:
    """The input's share of the gates and a product a step; backward another one a step, then dx and both dW."""
    gates = CELLS[case.cell][2]

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, device="cuda", dtype=case.dtype)

    w_GI, u_GD = some(gates * case.width, case.inputs), some(gates * case.width, case.width)
    h_BD, g_BG = some(case.batch, case.width), some(case.batch, gates * case.width)
    x_NI, y_ND = x_TBI.flatten(0, 1), some(case.time * case.batch, case.width)
    d_NG = some(case.time * case.batch, gates * case.width)

    def forward() -> None:
        x_NI @ w_GI.T
        for _ in range(case.time):
            torch.mm(h_BD, u_GD.T, out=g_BG)

    def training() -> None:
        forward()
        for _ in range(case.time):
            torch.mm(g_BG, u_GD, out=h_BD)
        d_NG @ w_GI
        d_NG.T @ x_NI
        d_NG.T @ y_ND

    return {"forward": forward, "training": training}

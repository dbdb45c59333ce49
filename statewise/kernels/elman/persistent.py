"""Elman's recurrence as one kernel over the whole sequence, on a Hopper GPU."""

from torch import Tensor

from statewise.kernels import persistent
from statewise.kernels.elman import fused, naive
from statewise.kernels.elman.naive import ElmanWeights


def elman(x_BTI: Tensor, h_BD: Tensor, weights: ElmanWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    def equation(tensors: persistent.Tensors) -> tuple[Tensor, ...]:
        x_TBI, h_BD, _, w_DI, u_DD, b_D, _ = tensors
        again = ElmanWeights(w_DI.float(), u_DD.float(), b_D.float(), weights.activation)
        y_BTD, after = naive.elman(x_TBI.transpose(0, 1).float(), h_BD.float(), again, lengths_B)
        return y_BTD.transpose(0, 1), after

    flat = (weights.w_DI, weights.u_DD, weights.b_D)
    try:
        y_BTD, after = persistent.run(weights.activation, x_BTI, (h_BD,), flat, lengths_B, equation)
    except persistent.Unavailable:
        return fused.elman(x_BTI, h_BD, weights, lengths_B)
    return y_BTD, after[0]

"""Elman's recurrence as one product and one kernel a step, on an NVIDIA GPU."""

from torch import Tensor

from statewise.kernels import stepped
from statewise.kernels.elman import fused, naive
from statewise.kernels.elman.naive import ElmanWeights


def elman(x_BTI: Tensor, h_BD: Tensor, weights: ElmanWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    def equation(tensors: stepped.Tensors) -> tuple[Tensor, ...]:
        x_BTI, h_BD, _, w_DI, u_DD, b_D, *_ = tensors
        again = ElmanWeights(w_DI.float(), u_DD.float(), b_D.float(), weights.activation)
        return naive.elman(x_BTI.float(), h_BD.float(), again, lengths_B)

    tensors = stepped.Tensors(x_BTI, h_BD, None, weights.w_DI, weights.u_DD, weights.b_D)
    try:
        y_BTD, after = stepped.run(weights.activation, tensors, lengths_B, equation)
    except stepped.Unavailable:
        return fused.elman(x_BTI, h_BD, weights, lengths_B)
    return y_BTD, after

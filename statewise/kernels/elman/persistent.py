"""Elman's recurrence as one kernel over the whole sequence, on an NVIDIA GPU."""

from torch import Tensor

from statewise.kernels import persistent
from statewise.kernels.elman import fused, naive
from statewise.kernels.elman.naive import ElmanWeights


def elman(x_BTI: Tensor, h_BD: Tensor | None, weights: ElmanWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """A state of zeros may be absent."""

    def equation(tensors: persistent.Tensors) -> tuple[Tensor, ...]:
        x_BTI, h_BD, _, w_DI, u_DD, b_D, _ = tensors
        again = ElmanWeights(w_DI.float(), u_DD.float(), b_D.float(), weights.activation)
        begin_BD = again.rest(len(x_BTI)) if h_BD is None else h_BD.float()
        return naive.elman(x_BTI.float(), begin_BD, again, lengths_B)

    tensors = persistent.Tensors(x_BTI, h_BD, None, weights.w_DI, weights.u_DD, weights.b_D, None)
    try:
        y_BTD, after = persistent.run(weights.activation, tensors, lengths_B, equation)
    except persistent.Unavailable:
        return fused.elman(x_BTI, weights.rest(len(x_BTI)) if h_BD is None else h_BD, weights, lengths_B)
    return y_BTD, after

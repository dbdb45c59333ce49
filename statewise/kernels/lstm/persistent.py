"""The LSTM as one kernel over the whole sequence, on an NVIDIA GPU."""

from torch import Tensor

from statewise.kernels import persistent
from statewise.kernels.lstm import fused, naive
from statewise.kernels.lstm.naive import LSTMWeights


def lstm(
    x_BTI: Tensor, h_BP: Tensor | None, c_BD: Tensor | None, weights: LSTMWeights, lengths_B: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """A state of zeros may be absent."""

    def equation(tensors: persistent.Tensors) -> tuple[Tensor, ...]:
        x_BTI, h_BD, c_BD, w_GI, u_GD, b_G, _ = tensors
        again = LSTMWeights(w_GI.float(), u_GD.float(), b_G.float())
        h_rest, c_rest = again.rest(len(x_BTI))
        h_BD = h_rest if h_BD is None else h_BD.float()
        c_BD = c_rest if c_BD is None else c_BD.float()
        return naive.lstm(x_BTI.float(), h_BD, c_BD, again, lengths_B)

    tensors = persistent.Tensors(x_BTI, h_BP, c_BD, weights.w_GI, weights.u_GP, weights.b_G, None)
    try:
        y_BTP, h_after, c_after = persistent.run("lstm", tensors, lengths_B, equation)
    except persistent.Unavailable:
        if h_BP is None or c_BD is None:
            h_BP, c_BD = weights.rest(len(x_BTI))
        return fused.lstm(x_BTI, h_BP, c_BD, weights, lengths_B)
    return y_BTP, h_after, c_after

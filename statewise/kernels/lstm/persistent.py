"""The LSTM as one kernel over the whole sequence, on a Hopper GPU."""

from torch import Tensor

from statewise.kernels import persistent
from statewise.kernels.lstm import fused, naive
from statewise.kernels.lstm.naive import LSTMWeights


def lstm(
    x_BTI: Tensor, h_BP: Tensor, c_BD: Tensor, weights: LSTMWeights, lengths_B: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    def equation(tensors: persistent.Tensors) -> tuple[Tensor, ...]:
        x_TBI, h_BD, c_BD, w_GI, u_GD, b_G, _ = tensors
        assert c_BD is not None
        again = LSTMWeights(w_GI.float(), u_GD.float(), b_G.float())
        y_BTD, *after = naive.lstm(x_TBI.transpose(0, 1).float(), h_BD.float(), c_BD.float(), again, lengths_B)
        return y_BTD.transpose(0, 1), *after

    flat = (weights.w_GI, weights.u_GP, weights.b_G)
    try:
        y_BTP, after = persistent.run("lstm", x_BTI, (h_BP, c_BD), flat, lengths_B, equation)
    except persistent.Unavailable:
        return fused.lstm(x_BTI, h_BP, c_BD, weights, lengths_B)
    return y_BTP, after[0], after[1]

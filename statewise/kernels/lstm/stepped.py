"""The LSTM, with layer norm or without, as one product and one kernel a step, on an NVIDIA GPU."""

from torch import Tensor

from statewise.kernels import stepped
from statewise.kernels.lstm import fused, naive
from statewise.kernels.lstm.naive import LSTMNorm, LSTMWeights


def lstm(
    x_BTI: Tensor, h_BP: Tensor, c_BD: Tensor, weights: LSTMWeights, lengths_B: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    def equation(tensors: stepped.Tensors) -> tuple[Tensor, ...]:
        x_BTI, h_BD, c_BD, w_GI, u_GD, b_G, _, *gains = tensors
        assert c_BD is not None
        norm = LSTMNorm(*(gain.float() for gain in gains if gain is not None)) if weights.norm is not None else None
        again = LSTMWeights(w_GI.float(), u_GD.float(), b_G.float(), norm=norm)
        return naive.lstm(x_BTI.float(), h_BD.float(), c_BD.float(), again, lengths_B)

    gains: tuple[Tensor | None, ...] = weights.norm or ()
    tensors = stepped.Tensors(x_BTI, h_BP, c_BD, weights.w_GI, weights.u_GP, weights.b_G, None, *gains)
    try:
        y_BTP, h_after, c_after = stepped.run("lstm", tensors, lengths_B, equation)
    except stepped.Unavailable:
        other = fused.lstm if weights.norm is None else naive.lstm
        return other(x_BTI, h_BP, c_BD, weights, lengths_B)
    return y_BTP, h_after, c_after

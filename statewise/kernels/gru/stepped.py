"""The GRU, reset after the product, as one product and one kernel a step, on an NVIDIA GPU."""

from torch import Tensor

from statewise.kernels import stepped
from statewise.kernels.gru import fused, naive
from statewise.kernels.gru.naive import GRUWeights


def gru(x_BTI: Tensor, h_BD: Tensor, weights: GRUWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    assert weights.b_u_D is not None, "the choice sends the reset-before form to naive"

    def equation(tensors: stepped.Tensors) -> tuple[Tensor, ...]:
        x_BTI, h_BD, _, w_GI, u_GD, b_G, b_u_D, *_ = tensors
        assert b_u_D is not None
        again = GRUWeights(w_GI.float(), u_GD.float(), b_G.float(), b_u_D.float())
        return naive.gru(x_BTI.float(), h_BD.float(), again, lengths_B)

    flat = (weights.w_GI, weights.u_GD, weights.b_G, weights.b_u_D)
    try:
        tensors = stepped.Tensors(x_BTI, h_BD, None, *flat)
        y_BTD, after = stepped.run("gru", tensors, lengths_B, equation)
    except stepped.Unavailable:
        return fused.gru(x_BTI, h_BD, weights, lengths_B)
    return y_BTD, after

"""The GRU, reset after the product, as one kernel over the whole sequence, on an NVIDIA GPU."""

from torch import Tensor

from statewise.kernels import persistent
from statewise.kernels.gru import fused, naive
from statewise.kernels.gru.naive import GRUWeights


def gru(x_BTI: Tensor, h_BD: Tensor | None, weights: GRUWeights, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
    """A state of zeros may be absent."""
    assert weights.b_u_D is not None, "the choice sends the reset-before form to naive"

    def equation(tensors: persistent.Tensors) -> tuple[Tensor, ...]:
        x_BTI, h_BD, _, w_GI, u_GD, b_G, b_u_D = tensors
        assert b_u_D is not None
        again = GRUWeights(w_GI.float(), u_GD.float(), b_G.float(), b_u_D.float())
        begin_BD = again.rest(len(x_BTI)) if h_BD is None else h_BD.float()
        return naive.gru(x_BTI.float(), begin_BD, again, lengths_B)

    tensors = persistent.Tensors(x_BTI, h_BD, None, weights.w_GI, weights.u_GD, weights.b_G, weights.b_u_D)
    try:
        y_BTD, after = persistent.run("gru", tensors, lengths_B, equation)
    except persistent.Unavailable:
        return fused.gru(x_BTI, weights.rest(len(x_BTI)) if h_BD is None else h_BD, weights, lengths_B)
    return y_BTD, after

"""The LSTM: the equation, PyTorch's own op, and the choice between them."""

from torch import Tensor

from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.lstm import fused, naive
from statewise.kernels.lstm.naive import LSTMNorm as LSTMNorm
from statewise.kernels.lstm.naive import LSTMWeights as LSTMWeights
from statewise.kernels.lstm.naive import input_share as input_share
from statewise.kernels.lstm.naive import lstm_step as lstm_step


def choice(weights: LSTMWeights, *, wish: Wish = "auto") -> Choice:
    obstacles = {
        "peepholes": weights.peephole is not None,
        "layer norm": weights.norm is not None,
        "coupled gates": weights.coupled,
        "zoneout": weights.zoneout > 0,
        "projection on a CPU": weights.projection_PD is not None and weights.w_GI.device.type == "cpu",
    }
    return choose("LSTM", obstacles=[name for name, present in obstacles.items() if present], wish=wish)


def lstm(
    x_BTI: Tensor,
    h_BP: Tensor,
    c_BD: Tensor,
    weights: LSTMWeights,
    lengths_B: Tensor | None = None,
    *,
    wish: Wish = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    run = fused.lstm if choice(weights, wish=wish).implementation == "fused" else naive.lstm
    return run(x_BTI, h_BP, c_BD, weights, lengths_B)

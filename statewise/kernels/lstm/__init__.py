"""The LSTM: the equation, PyTorch's own op, a kernel of our own for Hopper GPUs, and the choice between them."""

from torch import Tensor

from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.lstm import fused, naive, persistent
from statewise.kernels.lstm.naive import LSTMNorm as LSTMNorm
from statewise.kernels.lstm.naive import LSTMWeights as LSTMWeights
from statewise.kernels.lstm.naive import input_share as input_share
from statewise.kernels.lstm.naive import lstm_step as lstm_step
from statewise.kernels.persistent import with_persistent


def choice(weights: LSTMWeights, *, wish: Wish = "auto", batch: int = 1) -> Choice:
    obstacles = {
        "peepholes": weights.peephole is not None,
        "layer norm": weights.norm is not None,
        "coupled gates": weights.coupled,
        "zoneout": weights.zoneout > 0,
        "projection on a CPU": weights.projection_PD is not None and weights.w_GI.device.type == "cpu",
    }
    here = [name for name, present in obstacles.items() if present]
    projected = "it has no projection" if weights.projection_PD is not None else None
    fast, absent = with_persistent(["fused"], "lstm", weights.u_GP, batch=batch, variant=projected)
    return choose("LSTM", obstacles=here, wish=wish, fast=fast, absent=absent)


def lstm(
    x_BTI: Tensor,
    h_BP: Tensor,
    c_BD: Tensor,
    weights: LSTMWeights,
    lengths_B: Tensor | None = None,
    *,
    wish: Wish = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    run = {"naive": naive.lstm, "fused": fused.lstm, "persistent": persistent.lstm}
    chosen = choice(weights, wish=wish, batch=len(x_BTI)).implementation
    return run[chosen](x_BTI, h_BP, c_BD, weights, lengths_B)

"""The LSTM: the equation, PyTorch's own op, two forms of our own for GPUs, and the choice between them."""

from torch import Tensor

from statewise.kernels.choice import RECURRENT_OP, Choice, Implementation, Wish, choose
from statewise.kernels.lstm import naive
from statewise.kernels.lstm.naive import LSTMNorm as LSTMNorm
from statewise.kernels.lstm.naive import LSTMWeights as LSTMWeights
from statewise.kernels.lstm.naive import lstm_step as lstm_step
from statewise.kernels.lstm.naive import project_input as project_input
from statewise.kernels.persistent import with_persistent
from statewise.kernels.recurrent import Layer, Result, as_wide_as, cached_choice, implementations, traceable
from statewise.kernels.stepped import obstacle, with_stepped


def choice(weights: LSTMWeights, *, wish: Wish = "auto", batch: int = 1) -> Choice:
    obstacles = {
        "peepholes": weights.peephole is not None,
        "layer norm": weights.norm is not None,
        "coupled gates": weights.coupled,
        "zoneout": weights.zoneout > 0,
        "projection on a CPU": weights.projection_PD is not None and weights.w_GI.device.type == "cpu",
    }
    here = [name for name, present in obstacles.items() if present]
    if here == ["layer norm"] and weights.projection_PD is None and weights.u_GP.device.type == "cuda":
        return _with_norm(weights, wish=wish, batch=batch)
    projected = "it has no projection" if weights.projection_PD is not None else None
    fast, absent = with_persistent(["fused"], "lstm", weights.u_GP, batch=batch, variant=projected)
    fast, absent = with_stepped(fast, absent, "lstm", weights.u_GP, batch=batch, wish=wish, variant=projected)
    return choose("LSTM", obstacles=here, wish=wish, fast=fast, absent=absent, traced=RECURRENT_OP)


def _with_norm(weights: LSTMWeights, *, wish: Wish, batch: int) -> Choice:
    """On a GPU, where one of the fast forms has layer norm and the others have not."""
    lacking = "it has no layer norm"
    absent: dict[Implementation, str] = {"fused": lacking, "persistent": lacking}
    reason = obstacle("lstm", width=weights.u_GP.shape[1], batch=batch, weight=weights.u_GP, normed=True)
    if reason is not None:
        return choose("LSTM", obstacles=["layer norm"], wish=wish, absent={**absent, "stepped": reason})
    return choose("LSTM", obstacles=[], wish=wish, fast=["stepped"], absent=absent)


def chosen(weights: LSTMWeights, *, wish: Wish = "auto", batch: int = 1) -> Choice:
    """`choice`, cached."""
    parts = weights.peephole is None, weights.projection_PD is None, weights.norm is None, weights.coupled
    variant = (parts, weights.zoneout > 0, wish)
    return cached_choice("LSTM", lambda: choice(weights, wish=wish, batch=batch), weights.u_GP, variant, batch=batch)


def _layer(weights: LSTMWeights) -> Layer:
    def equation(layer: Layer, x_BTI: Tensor, state: tuple[Tensor, Tensor], lengths_B: Tensor | None) -> Result:
        norm = LSTMNorm(*layer.gains) if layer.gains else None
        return naive.lstm(x_BTI, *state, LSTMWeights(layer.w_GI, layer.u_GP, layer.b_G, norm=norm), lengths_B)

    flat = (weights.w_GI, weights.u_GP, weights.b_G)
    return Layer("lstm", equation, *flat, projection_PD=weights.projection_PD, gains=weights.norm or ())


IMPLEMENTATIONS = {"naive": naive.lstm, **implementations(_layer)}


def lstm(
    x_BTI: Tensor,
    h_BP: Tensor | None,
    c_BD: Tensor | None,
    weights: LSTMWeights,
    lengths_B: Tensor | None = None,
    *,
    wish: Wish = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs, last state and last cell. Without a state it begins at zeros, which the kernels need not be given."""
    batch = x_BTI.shape[0]
    weights = as_wide_as(h_BP, weights)
    implementation = chosen(weights, wish=traceable(wish, lengths_B), batch=batch).implementation
    if implementation != "persistent" and (h_BP is None or c_BD is None):
        h_BP, c_BD = weights.zero_state(batch)
    y_BTP, h_after, c_after = IMPLEMENTATIONS[implementation](x_BTI, h_BP, c_BD, weights, lengths_B)
    return y_BTP, h_after, c_after

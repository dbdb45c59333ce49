"""The forms torch.nn does not have, against plain NumPy loops written from the papers' equations."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from agreement import assert_same, fill, noise
from numpy.typing import NDArray

from statewise.mixers import GRU, LSTM, Elman, ElmanState, GRUState, LSTMState

Array = NDArray[np.float64]
BATCH, TIME, INPUT, WIDTH = 3, 8, 4, 5
X = noise(BATCH, TIME, INPUT, seed=1).numpy()
H0 = noise(BATCH, WIDTH, seed=2).numpy()
C0 = noise(BATCH, WIDTH, seed=3).numpy()


def sigmoid(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


def layer_norm(a: Array, gain: Array, bias: Array | float = 0.0) -> Array:
    """Ba et al. 2016: centred and scaled over the units of a layer, with torch's epsilon."""
    centred = a - a.mean(-1, keepdims=True)
    return gain * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) + bias


def weights_of(mixer: torch.nn.Module) -> dict[str, Array]:
    return {name: parameter.detach().numpy() for name, parameter in mixer.named_parameters()}


def over_time(step: Callable[..., tuple[Array, ...]], *state: Array) -> tuple[Array, tuple[Array, ...]]:
    """The first part of the state is what shows."""
    outputs = []
    for t in range(TIME):
        state = step(X[:, t], *state)
        outputs.append(state[0])
    return np.stack(outputs, axis=1), state


@pytest.mark.parametrize("zoneout", [0.0, 0.3])
def test_elman_1990(zoneout: float) -> None:
    mixer = Elman(WIDTH, input_width=INPUT, zoneout=zoneout, kernel="naive").double().eval()
    fill(mixer)
    w = weights_of(mixer)

    def step(x: Array, h: Array) -> tuple[Array]:
        fresh = np.tanh(x @ w["w_DI"].T + h @ w["u_DD"].T + w["b_D"])
        return (zoneout * h + (1 - zoneout) * fresh,)

    y, (h,) = over_time(step, H0)
    got_y, got = mixer(torch.tensor(X), ElmanState(torch.tensor(H0)))
    assert_same(got_y.detach(), y)
    assert_same(got.h_BD.detach(), h)


@pytest.mark.parametrize("zoneout", [0.0, 0.3])
def test_gru_of_cho_2014(zoneout: float) -> None:
    """Reset before the product. Cho's update gate z mixes as `z h + (1 - z) n`: eq. 7 of the paper, its sign ours."""
    mixer = GRU(WIDTH, input_width=INPUT, reset="before", zoneout=zoneout).double().eval()
    fill(mixer)
    w = weights_of(mixer)
    w_r, w_z, w_n = np.split(w["w_GI"], 3)
    u_r, u_z, u_n = np.split(w["u_GD"], 3)
    b_r, b_z, b_n = np.split(w["b_G"], 3)

    def step(x: Array, h: Array) -> tuple[Array]:
        r = sigmoid(x @ w_r.T + h @ u_r.T + b_r)
        z = sigmoid(x @ w_z.T + h @ u_z.T + b_z)
        candidate = np.tanh(x @ w_n.T + (r * h) @ u_n.T + b_n)
        fresh = z * h + (1 - z) * candidate
        return (zoneout * h + (1 - zoneout) * fresh,)

    y, (h,) = over_time(step, H0)
    got_y, got = mixer(torch.tensor(X), GRUState(torch.tensor(H0)))
    assert_same(got_y.detach(), y)
    assert_same(got.h_BD.detach(), h)


VARIANTS = {
    "plain": {},
    "peephole": {"peephole": True},
    "coupled": {"coupled": True},
    "layer norm": {"layer_norm": True},
    "projection": {"projection": 3},
    "zoneout": {"zoneout": 0.25},
    "coupled peephole": {"coupled": True, "peephole": True},
    "all": {"peephole": True, "coupled": True, "layer_norm": True, "projection": 3, "zoneout": 0.25},
}


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_lstm_variants(options: dict[str, object]) -> None:
    """Gers and Schmidhuber 2000 (peepholes), Greff et al. 2015 (coupled), Ba et al. 2016 (layer norm),

    Sak et al. 2014 (projection), Krueger et al. 2016 (zoneout, its expectation)."""
    mixer = LSTM(WIDTH, input_width=INPUT, kernel="naive", **options).double().eval()
    fill(mixer)
    w = weights_of(mixer)
    coupled, rate = mixer.coupled, mixer.zoneout

    def step(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        from_input, from_state = x @ w["w_GI"].T, h @ w["u_GP"].T
        if "norm_input_G" in w:
            from_input = layer_norm(from_input, w["norm_input_G"])
            from_state = layer_norm(from_state, w["norm_recurrent_G"])
        gates = dict(
            zip("fgo" if coupled else "ifgo", np.split(from_input + from_state + w["b_G"], 3 + (not coupled), 1))
        )
        sees = dict(zip("fo" if coupled else "ifo", w.get("peephole", np.zeros((3, WIDTH)))))

        f = sigmoid(gates["f"] + sees["f"] * c)
        i = 1 - f if coupled else sigmoid(gates["i"] + sees["i"] * c)
        fresh_c = f * c + i * np.tanh(gates["g"])
        o = sigmoid(gates["o"] + sees["o"] * fresh_c)
        shown = layer_norm(fresh_c, w["norm_cell_D"], w["norm_cell_bias_D"]) if "norm_cell_D" in w else fresh_c
        fresh_h = o * np.tanh(shown)
        if "projection_PD" in w:
            fresh_h = fresh_h @ w["projection_PD"].T
        return rate * h + (1 - rate) * fresh_h, rate * c + (1 - rate) * fresh_c

    h0 = H0[:, : mixer.output_width]
    y, (h, c) = over_time(step, h0, C0)
    got_y, got = mixer(torch.tensor(X), LSTMState(torch.tensor(h0), torch.tensor(C0)))
    assert_same(got_y.detach(), y)
    assert_same(got.h_BP.detach(), h)
    assert_same(got.c_BD.detach(), c)

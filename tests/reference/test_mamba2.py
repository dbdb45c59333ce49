"""Mamba-2 against the recurrence of Dao and Gu 2024, discretised by hand in NumPy, unit by unit."""

from typing import Any

import numpy as np
import pytest
import torch
from agreement import assert_same, fill, noise
from numpy.typing import NDArray

from statewise.kernels.linear_attention import linear_attention
from statewise.mixers import Mamba2

Array = NDArray[np.float64]
BATCH, TIME, INPUT, WIDTH, HEADS, STATE = 2, 9, 5, 6, 2, 4
X = noise(BATCH, TIME, INPUT, seed=1)


def silu(a: Array) -> Array:
    return a / (1 + np.exp(-a))


def mamba2(mixer: Mamba2, x: Array, inner: int) -> Array:
    """One row. Each inner unit is a small linear system `h' = A h + B x`, `y = C h + d x`, with its head's A and Δ."""
    w: dict[str, Any] = {name: parameter.detach().numpy() for name, parameter in mixer.named_parameters()}
    a = x @ w["w_CI"].T
    if "w_conv_CK" in w:
        taps = w["w_conv_CK"].shape[1]
        padded = np.concatenate([np.zeros((taps - 1, a.shape[1])), a])
        a = np.stack([(padded[t : t + taps] * w["w_conv_CK"].T).sum(0) for t in range(len(x))])
    u, b, c = np.split(silu(a), [inner, inner + STATE], axis=1)
    y = np.zeros((len(x), inner))
    for unit in range(inner):
        head = unit // (inner // HEADS)
        rate, h = -np.exp(w["log_rate_H"][head]), np.zeros(STATE)
        for t in range(len(x)):
            delta = np.log1p(np.exp(w["w_step_HI"][head] @ x[t] + w["b_step_H"][head]))
            h = np.exp(delta * rate) * h + delta * b[t] * u[t, unit]
            skip = w["skip_H"][head] if "skip_H" in w else w["skip_E"][unit]
            y[t, unit] = c[t] @ h + skip * u[t, unit]
    if "w_gate_EI" in w:
        y = y * silu(x @ w["w_gate_EI"].T)
    y = y / np.sqrt((y**2).mean(1, keepdims=True) + 1e-5) * w["gain_E"]
    return y @ w["w_out_DE"].T


@pytest.mark.parametrize("kernel", ["naive", "batched"])
@pytest.mark.parametrize(
    "options", [{}, {"conv": 0}, {"gate": False}, {"skip": "head"}, {"expand": 1, "conv": 2}], ids=str
)
def test_mamba2(options: dict[str, Any], kernel: str) -> None:
    sizes = {"input_width": INPUT, "heads": HEADS, "state": STATE}
    mixer = Mamba2(WIDTH, **sizes, kernel=kernel, **options).double()
    fill(mixer)
    y, _ = mixer(X)
    for row in range(BATCH):
        assert_same(y[row].detach(), mamba2(mixer, X[row].numpy(), options.get("expand", 2) * WIDTH))


def test_a_decay_that_never_varies_is_a_convolution() -> None:
    """A time-invariant state space has an impulse response, c e^{g n} b; its output is the input convolved with it."""
    time, rate = 12, 0.3
    b, c, u = (noise(size, seed=n) for n, size in enumerate((STATE, STATE, time)))
    response = torch.stack([torch.exp(torch.tensor(-rate * n, dtype=torch.float64)) * (b @ c) for n in range(time)])
    expected = torch.stack([(response[: t + 1].flip(0) * u[: t + 1]).sum() for t in range(time)])
    keys, queries = (part.expand(1, time, 1, STATE) for part in (b, c))
    g = torch.full((1, time, 1), -rate, dtype=torch.float64)
    start = torch.zeros(1, 1, STATE, 1, dtype=torch.float64)
    y, _ = linear_attention(queries, keys, u.view(1, time, 1, 1), g, start)
    assert_same(y.flatten(), expected)

"""Gated DeltaNet against the recurrence of Yang et al. 2024, eq. 10, written out in NumPy row by row."""

from typing import Any

import numpy as np
import pytest
import torch
from agreement import assert_same, fill, noise
from numpy.typing import NDArray

from statewise.kernels.gated_delta import gated_delta
from statewise.mixers import GatedDelta

Array = NDArray[np.float64]
BATCH, TIME, INPUT, WIDTH, HEADS = 2, 9, 5, 6, 2
HEAD = WIDTH // HEADS
X = noise(BATCH, TIME, INPUT, seed=1)


def sigmoid(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


def silu(a: Array) -> Array:
    return a * sigmoid(a)


def delta_net(mixer: GatedDelta, x: Array) -> tuple[Array, Array]:
    """One row. The state is the paper's: values by keys."""
    w: dict[str, Any] = {name: parameter.detach().numpy() for name, parameter in mixer.named_parameters()}
    a = x @ w["w_GI"].T
    if "w_conv_CK" in w:
        taps = w["w_conv_CK"].shape[1]
        padded = np.concatenate([np.zeros((taps - 1, a.shape[1])), a])
        a = np.stack([(padded[t : t + taps] * w["w_conv_CK"].T).sum(0) for t in range(len(x))])
    a = silu(a)
    y, states = np.zeros((len(x), WIDTH)), []
    for h in range(HEADS):
        q, k, v = (part[:, h * HEAD : (h + 1) * HEAD] for part in np.split(a, 3, axis=1))
        q, k = (part / np.sqrt((part**2).sum(1, keepdims=True) + 1e-6) for part in (q, k))
        s = np.zeros((HEAD, HEAD))
        for t in range(len(x)):
            beta, alpha = sigmoid(w["w_beta_HI"][h] @ x[t]), 1.0
            if "w_decay_HI" in w:
                step = np.log1p(np.exp(w["w_decay_HI"][h] @ x[t] + w["b_decay_H"][h]))
                alpha = np.exp(-np.exp(w["log_rate_H"][h]) * step)
            s = alpha * s @ (np.eye(HEAD) - beta * np.outer(k[t], k[t])) + beta * np.outer(v[t], k[t])
            read = s @ q[t]
            y[t, h * HEAD : (h + 1) * HEAD] = read / np.sqrt((read**2).mean() + 1e-5) * w["gain_K"]
        states.append(s)
    if "w_gate_DI" in w:
        y = y * silu(x @ w["w_gate_DI"].T)
    return y @ w["w_out_DD"].T, np.stack(states)


@pytest.mark.parametrize("kernel", ["naive", "batched"])
@pytest.mark.parametrize(
    "options",
    [{}, {"decay": False}, {"conv": 0}, {"gate": False}, {"decay": False, "conv": 0, "gate": False}],
    ids=str,
)
def test_gated_delta_net(options: dict[str, Any], kernel: str) -> None:
    mixer = GatedDelta(WIDTH, input_width=INPUT, heads=HEADS, kernel=kernel, **options).double()
    fill(mixer)
    y, state = mixer(X)
    for b in range(BATCH):
        expected_y, expected_s = delta_net(mixer, X[b].numpy())
        assert_same(y[b].detach(), expected_y)
        assert_same(state.s_BHKK[b].mT.detach(), expected_s)


@pytest.mark.parametrize("kernel", ["naive", "batched"])
def test_a_key_of_length_one_and_a_full_step_replace_the_value(kernel: str) -> None:
    """Widrow and Hoff's rule: after writing with β = 1, the key reads exactly what was written last."""
    k = torch.nn.functional.normalize(noise(1, 1, 1, 4, seed=1), dim=-1).expand(1, 5, 1, 4)
    v, none = noise(1, 5, 1, 3, seed=2), torch.zeros(1, 5, 1, dtype=torch.float64)
    y, _ = gated_delta(k, k, v, none + 1, none, noise(1, 1, 4, 3, seed=3), wish=kernel)
    assert_same(y, v)


@pytest.mark.parametrize("kernel", ["naive", "batched"])
def test_the_delta_rule_is_one_gradient_step_on_the_error(kernel: str) -> None:
    """S - β ∇ ½‖Sᵀk - v‖², the gradient by autograd."""
    k = torch.nn.functional.normalize(noise(1, 1, 1, 4, seed=4), dim=-1)
    v, s = noise(1, 1, 1, 3, seed=5), noise(1, 1, 4, 3, seed=6).requires_grad_()
    loss = 0.5 * ((s * k[:, 0, :, :, None]).sum(-2) - v[:, 0]).square().sum()
    (gradient,) = torch.autograd.grad(loss, s)
    beta, none = torch.full((1, 1, 1), 0.3, dtype=torch.float64), torch.zeros(1, 1, 1, dtype=torch.float64)
    _, after = gated_delta(k, k, v, beta, none, s, wish=kernel)
    assert_same(after.detach(), (s - 0.3 * gradient).detach())

"""minGRU and minLSTM against NumPy loops written from the equations of Feng et al. 2024."""

import numpy as np
import pytest
import torch
from agreement import assert_same, fill, noise
from numpy.typing import NDArray

from statewise.mixers import MinGRU, MinGRUState, MinLSTM, MinLSTMState

Array = NDArray[np.float64]
BATCH, TIME, INPUT, WIDTH = 3, 9, 4, 5
X = noise(BATCH, TIME, INPUT, seed=1).numpy()
H0 = noise(BATCH, WIDTH, seed=2).numpy()


def sigmoid(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


BENDS = {
    "linear": lambda a: a,
    "tanh": np.tanh,
    "positive": lambda a: np.where(a >= 0, a + 0.5, sigmoid(a)),
}


@pytest.mark.parametrize("kernel", ["naive", "batched"])
@pytest.mark.parametrize("candidate", BENDS)
def test_mingru(candidate: str, kernel: str) -> None:
    mixer = MinGRU(WIDTH, input_width=INPUT, candidate=candidate, kernel=kernel).double()
    fill(mixer)
    w_z, w_h = np.split(mixer.w_GI.detach().numpy(), 2)
    b_z, b_h = np.split(mixer.b_G.detach().numpy(), 2)
    h, expected = H0, []
    for t in range(TIME):
        z = sigmoid(X[:, t] @ w_z.T + b_z)
        h = (1 - z) * h + z * BENDS[candidate](X[:, t] @ w_h.T + b_h)
        expected.append(h)
    y, after = mixer(torch.tensor(X), MinGRUState(torch.tensor(H0)))
    assert_same(y.detach(), np.stack(expected, axis=1))
    assert_same(after.h_BD.detach(), h)


@pytest.mark.parametrize("kernel", ["naive", "batched"])
@pytest.mark.parametrize("share", [True, False])
def test_minlstm(share: bool, kernel: str) -> None:
    mixer = MinLSTM(WIDTH, input_width=INPUT, share=share, kernel=kernel).double()
    fill(mixer)
    w_f, w_i, w_h = np.split(mixer.w_GI.detach().numpy(), 3)
    b_f, b_i, b_h = np.split(mixer.b_G.detach().numpy(), 3)
    h, expected = H0, []
    for t in range(TIME):
        f, i = sigmoid(X[:, t] @ w_f.T + b_f), sigmoid(X[:, t] @ w_i.T + b_i)
        total = f + i if share else 1.0
        h = f / total * h + i / total * (X[:, t] @ w_h.T + b_h)
        expected.append(h)
    y, after = mixer(torch.tensor(X), MinLSTMState(torch.tensor(H0)))
    assert_same(y.detach(), np.stack(expected, axis=1))
    assert_same(after.h_BD.detach(), h)


def test_minlstm_gates_that_are_both_shut_share_what_there_is() -> None:
    """f/(f+i) as written is 0/0 there; its limit is not."""
    mixer = MinLSTM(2, input_width=1).double()
    with torch.no_grad():
        mixer.w_GI.zero_()
        mixer.b_G.copy_(torch.tensor([-2000.0, -2000.0, -2000.0, -2001.0, 1.0, 1.0]))
    y, _ = mixer(torch.zeros(1, 1, 1, dtype=torch.float64))
    assert_same(y.detach().flatten(), np.array([0.5, 1 / (1 + np.e)]))
    y.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in mixer.parameters())

"""The window model against least squares and equations written in NumPy."""

import numpy as np
import pytest
import torch
from agreement import assert_same, fill
from numpy.lib.stride_tricks import sliding_window_view

from statewise.mixers import Window

ORDER = 3


def series(count: int, *, width: int, seed: int) -> np.ndarray:
    """A stable autoregressive series of `width` values at each moment, with noise and a mean."""
    generator = np.random.default_rng(seed)
    coefficients = 0.25 * generator.standard_normal((ORDER, width, width))
    values = [generator.standard_normal(width) for _ in range(ORDER)]
    for _ in range(count):
        past = sum(coefficients[k] @ values[-1 - k] for k in range(ORDER))
        values.append(0.3 + past + 0.5 * generator.standard_normal(width))
    return np.array(values)


@pytest.mark.parametrize("width", [1, 2])
def test_a_linear_window_is_least_squares(width: int) -> None:
    """At NumPy's solution the predictions are NumPy's, and no gradient is left: nothing predicts better."""
    x_TD = series(400, width=width, seed=1)
    windows_NKD = sliding_window_view(x_TD, ORDER, axis=0).swapaxes(1, 2)[:-1]
    design = np.hstack([windows_NKD.reshape(len(windows_NKD), -1), np.ones((len(windows_NKD), 1))])
    targets_ND = x_TD[ORDER:]
    solution, *_ = np.linalg.lstsq(design, targets_ND, rcond=None)

    mixer = Window(width, order=ORDER, activation="linear").double()
    with torch.no_grad():
        mixer.w_HIK.copy_(torch.from_numpy(solution[:-1].reshape(ORDER, width, width).transpose(2, 1, 0)))
        mixer.b_H.copy_(torch.from_numpy(solution[-1]))
        mixer.v_DH.copy_(torch.eye(width))
    y_BTD, _ = mixer(torch.from_numpy(x_TD)[None])
    predicted_ND = y_BTD[0, ORDER - 1 : -1]
    assert_same(predicted_ND, design @ solution)
    loss = (predicted_ND - torch.from_numpy(targets_ND)).square().mean()
    gradients = torch.autograd.grad(loss, list(mixer.parameters()))
    assert max(gradient.abs().max().item() for gradient in gradients) <= 1e-10


def test_its_own_fit_finds_the_coefficients() -> None:
    """From a random start, by gradients alone: the product of the two layers is NumPy's answer."""
    x_T = series(300, width=1, seed=2)[:, 0]
    design = np.hstack([sliding_window_view(x_T, ORDER)[:-1], np.ones((len(x_T) - ORDER, 1))])
    solution, *_ = np.linalg.lstsq(design, x_T[ORDER:], rcond=None)
    generator = torch.Generator().manual_seed(0)
    mixer = Window(1, order=ORDER, hidden=2, activation="linear", generator=generator).double()
    x_BTD = torch.from_numpy(x_T.copy())[None, :, None]
    optimizer = torch.optim.LBFGS(
        mixer.parameters(), max_iter=200, tolerance_grad=1e-13, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        y_BTD, _ = mixer(x_BTD)
        error = (y_BTD[0, ORDER - 1 : -1] - x_BTD[0, ORDER:]).square().mean()
        error.backward()
        return error

    optimizer.step(loss)
    weight_K = (mixer.v_DH @ mixer.w_HIK[:, 0]).detach()[0]
    intercept = (mixer.v_DH @ mixer.b_H + mixer.c_D).detach()
    assert_same(torch.cat([weight_K, intercept]), solution, tolerance=1e-6)


def test_the_equation_of_the_nonlinear_window() -> None:
    mixer = Window(4, input_width=2, order=3, hidden=5).double()
    fill(mixer)
    x_TI = np.random.default_rng(3).standard_normal((6, 2))
    padded = np.vstack([np.zeros((2, 2)), x_TI])
    w_HIK, b_H, v_DH, c_D = (parameter.detach().numpy() for parameter in mixer.parameters())
    expected = []
    for t in range(6):
        a_H = b_H + sum(w_HIK[:, :, k] @ padded[t + k] for k in range(3))
        expected.append(v_DH @ np.tanh(a_H) + c_D)
    y_BTD, state = mixer(torch.from_numpy(x_TI)[None])
    assert_same(y_BTD[0], np.array(expected))
    assert_same(state.past_BSI[0], x_TI[-2:])

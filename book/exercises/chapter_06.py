"""Checks of the exercises of chapter 6."""

import math
from types import ModuleType

import numpy as np
import torch


def check_6_1(answers: ModuleType) -> None:
    for eigenvalue, share in ((0.5, 0.25), (0.9, 0.01), (-0.8, 0.1), (0.6 + 0.7j, 1e-3), (0.99, 0.5)):
        steps = answers.steps_until(eigenvalue, share)
        assert steps == int(steps), f"{steps} is not a whole number of steps"
        left = abs(eigenvalue) ** int(steps)
        assert left <= share * (1 + 1e-9), f"after {steps} steps of {eigenvalue}, {left:.4g} is left, more than {share}"
        before = abs(eigenvalue) ** (int(steps) - 1)
        assert before > share * (1 + 1e-9), f"for {eigenvalue} and {share}, {steps - 1} steps are enough"


def check_6_2(answers: ModuleType) -> None:
    rng = np.random.default_rng(1)
    rotation = np.array([[0.0, -2.0], [2.0, 0.0]])  # its eigenvalues are not real
    for W, radius in ((rng.normal(size=(6, 6)), 0.9), (rotation, 1.0)):
        found = np.asarray(answers.rescaled(W, radius))
        has = np.abs(np.linalg.eigvals(found)).max()
        assert abs(has - radius) < 1e-9, f"the spectral radius is {has:.4f}, expected {radius}"
        factor = found.flat[1] / W.flat[1]
        assert factor > 0, "the number is positive"
        assert np.allclose(found, factor * W), "not W times a number"


def check_6_3(answers: ModuleType) -> None:
    rng = np.random.default_rng(2)
    U, x = rng.normal(size=(4, 4)), torch.tensor(rng.normal(size=(7, 4)))
    h = [torch.zeros(4, dtype=torch.float64, requires_grad=True)]
    for x_t in x:
        h.append(torch.tanh(torch.tensor(U) @ h[-1] + x_t))
    rows = [torch.autograd.grad(h[-1][i], h[:-1], retain_graph=True) for i in range(4)]
    jacobians = [torch.stack([row[t] for row in rows]) for t in range(7)]
    expected = [float(torch.linalg.matrix_norm(J, 2)) for J in reversed(jacobians)]
    found = np.asarray(answers.gradient_norms(U, torch.stack(h[1:]).detach().numpy()), dtype=float)
    assert found.shape == (7,), f"the shape is {found.shape}, expected one norm for each k, (7,)"
    assert abs(found[0] - expected[0]) < 1e-9, "k = 1 is not the norm of diag(1 - h_T²) U"
    assert np.allclose(found, expected), (
        "a Jacobian of k steps is the product of the k last ones, the latest on the left"
    )


def check_6_4(answers: ModuleType) -> None:
    for steps in (1, 10, 250):
        share = float(answers.share_for(steps))
        assert 0 < share < 1, f"a share of {share} is not between 0 and 1"
        assert abs(share**steps - 1 / math.e) < 1e-9, f"{share**steps:.4f} is left after {steps} steps, expected 1/e"


def check_6_5(answers: ModuleType) -> None:
    for w in (0.5, 1.1, 1.5, 3.0):
        h, slope = map(float, answers.fixed_point(w))
        assert abs(h - math.tanh(w * h)) < 1e-8, f"w = {w}: tanh(w h) is {math.tanh(w * h):.6f}, not h = {h:.6f}"
        assert w < 1 or h > 0.1, f"w = {w}: there is a larger fixed point than {h:.6f}"
        assert abs(slope - w * (1 - h**2)) < 1e-6, f"w = {w}: the slope is w (1 - h²), not {slope:.4f}"

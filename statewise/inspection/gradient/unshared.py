"""A remedy for vanishing and exploding gradients: other weights at every step, of a variance that is chosen.

R draws, T steps, D width.
"""

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from statewise.specs import UserError

Activation = Literal["linear", "tanh"]

_NODES = 64  # of the quadrature over a normal variable


def chosen_variance(
    steps: int, *, product: float = 1.0, activation: Activation = "linear", input_variance: float = 0.0
) -> float:
    """Variance of each of `steps` weights (times 1/D for a matrix) such that their product has variance `product`.

    A linear step multiplies the mean square of a gradient by the variance v, so `v = product^(1/steps)`. A step
    `tanh(W h + x)` multiplies it by `v E φ'(a)²`, where `a` has the variance that the states settle to; `v` solves it.
    """
    if steps < 1 or product <= 0 or input_variance < 0:
        raise UserError(
            f"steps = {steps}, product = {product}, input_variance = {input_variance}",
            fix="steps from 1, a product above 0, an input variance from 0",
        )
    wanted: float = product ** (1 / steps)
    if activation == "linear":
        return wanted
    low, high = 0.0, 1.0
    while factor(high, input_variance) < wanted:
        if high > 1e6:
            raise UserError(f"no variance makes tanh units multiply gradients by {wanted:.3g}", fix="a smaller product")
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if factor(middle, input_variance) < wanted else (low, middle)
    return high


def factor(variance: float, input_variance: float) -> float:
    """`v E φ'(a)²` of wide tanh layers: by what a step multiplies the mean square of a gradient."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    before = 1.0  # the mean square of a state, which settles
    for _ in range(2000):
        after = float(weights @ np.tanh(math.sqrt(variance * before + input_variance) * nodes) ** 2)
        if abs(after - before) < 1e-12:
            break
        before = after
    slope = 1 - np.tanh(math.sqrt(variance * before + input_variance) * nodes) ** 2
    return variance * float(weights @ slope**2)


def gradient_norms(
    *,
    width: int,
    steps: int,
    draws: int,
    variance: float,
    shared: bool,
    activation: Activation = "linear",
    input_variance: float = 0.0,
    seed: int = 0,
) -> Tensor:
    """`[R, T + 1]`: at distance k, the norm of the gradient of a unit-length read-out of `h_T` by `h_{T-k}`.

    `h_t = φ(W_t h_{t-1} + x_t)`; entries of `W_t` have variance `variance / width`, and `shared` makes all `W_t` one.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, spread: float = 1.0) -> Tensor:
        return spread * torch.randn(draws, *shape, dtype=torch.float64, generator=generator)

    def matrix() -> Tensor:
        return normal(width, width, spread=math.sqrt(variance / width))

    w_RDD, h_RD = matrix(), normal(width).requires_grad_()
    states = [h_RD]
    for t in range(steps):
        w_RDD = w_RDD if shared or t == 0 else matrix()
        a_RD = (w_RDD @ h_RD[:, :, None])[:, :, 0] + normal(width, spread=math.sqrt(input_variance))
        h_RD = a_RD if activation == "linear" else a_RD.tanh()
        states.append(h_RD)
    direction_RD = torch.nn.functional.normalize(normal(width), dim=1)
    gradients = torch.autograd.grad((h_RD * direction_RD).sum(), states)
    return torch.stack([gradient_RD.norm(dim=1) for gradient_RD in gradients[::-1]], dim=1)

"""The inner model of a test-time training layer: its loss, and the gradient written out.

    f(k; W) = k + norm(r(k; W))         with a norm: the paper's form
    f(k; W) = r(k; W)                   without
    r(k; W) = k W                       linear
    r(k; W₁, W₂) = gelu(k W₁) W₂        mlp
    ℓ(W; k, v) = ½ ‖f(k; W) - v‖²

Without any bias, so that the linear one without a norm is linear attention. Leading axes are free, and weights
broadcast over them: one time step `[B, H, K]`, or a mini-batch `[B, H, C, K]`.

B batch, H heads, K width of a head, M hidden width.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

EPS = 1e-6


class InnerNorm(NamedTuple):
    gain_HK: Tensor
    bias_HK: Tensor


Weights = tuple[Tensor, ...]  # (W,) or (W₁, W₂), each [..., in, out]


def normalised(r: Tensor) -> tuple[Tensor, Tensor]:
    """Centred and scaled over the last axis, and 1 over the scale."""
    centred = r - r.mean(-1, keepdim=True)
    inverse = torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS)
    return centred * inverse, inverse


def head_wise(value_HK: Tensor, like: Tensor) -> Tensor:
    """`[H, K]` to stand against `[B, H, K]` or `[B, H, C, K]`."""
    return value_HK if like.dim() == 3 else value_HK[:, None]


def shown(k: Tensor, r: Tensor, norm: InnerNorm | None) -> Tensor:
    """f, from r."""
    if norm is None:
        return r
    hat, _ = normalised(r)
    return k + hat * head_wise(norm.gain_HK, r) + head_wise(norm.bias_HK, r)


def error_at_output(k: Tensor, v: Tensor, r: Tensor, norm: InnerNorm | None) -> tuple[Tensor, Tensor]:
    """The loss and its gradient by r: through the norm, if there is one."""
    error = shown(k, r, norm) - v
    loss = 0.5 * error.square().sum(-1)
    if norm is None:
        return loss, error
    hat, inverse = normalised(r)
    d_hat = error * head_wise(norm.gain_HK, r)
    mean, along = d_hat.mean(-1, keepdim=True), (d_hat * hat).mean(-1, keepdim=True)
    return loss, inverse * (d_hat - mean - hat * along)


def gelu_slope(a: Tensor) -> Tensor:
    """The derivative of x Φ(x): Φ(x) + x φ(x)."""
    density = torch.exp(-0.5 * a.square()) / math.sqrt(2 * math.pi)
    return 0.5 * (1 + torch.erf(a / math.sqrt(2))) + a * density


class Gradient(NamedTuple):
    """A layer's gradient is the outer product of what goes into it and what comes back to it."""

    loss: Tensor
    inputs: tuple[Tensor, ...]  # one a layer: k, then the hidden units
    errors: tuple[Tensor, ...]


def inner_gradient(k: Tensor, v: Tensor, weights: Weights, norm: InnerNorm | None, *, rows: bool) -> Gradient:
    """By hand. `rows` says that k has an axis of time steps before its last; else it is one time step."""

    def product(x: Tensor, w: Tensor) -> Tensor:
        return x @ w if rows else (x[..., None, :] @ w)[..., 0, :]

    if len(weights) == 1:
        loss, error = error_at_output(k, v, product(k, weights[0]), norm)
        return Gradient(loss, (k,), (error,))
    first, second = weights
    a = product(k, first)
    hidden = F.gelu(a)
    loss, error = error_at_output(k, v, product(hidden, second), norm)
    return Gradient(loss, (k, hidden), (product(error, second.mT) * gelu_slope(a), error))

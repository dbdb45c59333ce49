"""Student's t distribution where torch has no function for it: distribution function, its inverse, normaliser.

    F(t) = 1 - ½ I_x(ν/2, 1/2)   for t ≥ 0, with x = ν / (ν + t²) and I the regularised incomplete beta function

I is summed as a continued fraction (DLMF 8.17.22) by Lentz's method as Thompson and Barnett 1986 have it.
All is computed in float64 and element by element; `freedom` is ν and broadcasts against `t`.
"""

import math

import torch
from torch import Tensor

_TINY = 1e-300
_LARGE = 50.0
_ROUNDS = 5000  # about √ν terms are needed


def half_step(x: Tensor) -> Tensor:
    """`log Γ(x + ½) - log Γ(x)`. For large x the two are huge and nearly equal: there by its series in 1/x."""
    small = x.clamp(max=_LARGE)
    y = 1 / x.clamp(min=_LARGE)
    series = -y / 8 + y**3 / 192 - y**5 / 640 + 17 * y**7 / 14336
    far = 0.5 * x.clamp(min=_LARGE).log() + series
    return torch.where(x < _LARGE, torch.lgamma(small + 0.5) - torch.lgamma(small), far)


def log1p_square(u: Tensor) -> Tensor:
    """`log(1 + u²)`, also where u² is too large for its dtype."""
    near = u.clamp(-1, 1)
    far = torch.where(u.abs() > 1, u, torch.ones_like(u))
    return torch.where(u.abs() > 1, 2 * torch.hypot(far, torch.ones_like(far)).log(), torch.log1p(near * near))


def log_density(t: Tensor, freedom: Tensor) -> Tensor:
    """`log Γ((ν+1)/2) - log Γ(ν/2) - ½ log πν - (ν+1)/2 · log(1 + t²/ν)`."""
    return (
        half_step(freedom / 2) - 0.5 * (math.pi * freedom).log() - (freedom + 1) / 2 * log1p_square(t / freedom.sqrt())
    )


@torch.no_grad()
def cdf(t: Tensor, freedom: Tensor) -> Tensor:
    """`P(T ≤ t)`, in float64."""
    tail = _upper_tail(t.abs().double(), freedom.double())
    return torch.where(t < 0, tail, 1 - tail)


@torch.no_grad()
def quantile(q: Tensor, freedom: Tensor) -> Tensor:
    """The t with `P(T ≤ t) = q`, 0 < q < 1, in float64.

    Newton's steps on `log P(T > sinh u)`, in which both a power law and a Gaussian tail are tame; a step
    that leaves the bracket is replaced by halving it.
    """
    q, freedom = q.double() + torch.zeros_like(freedom), freedom.double() + torch.zeros_like(q)  # of one shape
    p = torch.minimum(q, 1 - q)
    low, high = torch.zeros_like(p), torch.full_like(p, 700.0)  # sinh(700) is near the largest float64
    u = torch.asinh(-torch.special.ndtri(p))
    for _ in range(100):
        t = torch.sinh(u)
        tail = _upper_tail(t, freedom)
        error = (tail.clamp(min=_TINY) / p).log()
        low, high = torch.where(error > 0, u, low), torch.where(error > 0, high, u)
        slope = -(log_density(t, freedom).exp() * torch.cosh(u) / tail.clamp(min=_TINY))
        step = u - error / slope
        halved = (low + high) / 2
        after = torch.where((step >= low) & (step <= high), step, halved)  # NaN, too, is outside
        moved = (after - u).abs()
        u = after
        if (moved <= 1e-14 * (1 + u)).all():
            break
    t = torch.where(p < 0.5, torch.sinh(u), torch.zeros_like(u))
    return torch.where(q < 0.5, -t, t)


def _upper_tail(t: Tensor, freedom: Tensor) -> Tensor:
    """`P(T > t)` for t ≥ 0."""
    t, freedom = t + torch.zeros_like(freedom), freedom + torch.zeros_like(t)  # of one shape
    a, b = freedom / 2, torch.full_like(freedom, 0.5)
    u = t / freedom.sqrt()
    log_x, log_rest = -log1p_square(u), 2 * u.log() - log1p_square(u)
    log_front = a * log_x + b * log_rest + half_step(a) - 0.5 * math.log(math.pi)
    far = log_x.exp() < (a + 1) / (a + b + 2)  # where the fraction of I_x converges fast; elsewhere that of 1 - I
    first, second = torch.where(far, a, b), torch.where(far, b, a)
    x = torch.where(far, log_x, log_rest).exp()
    part = log_front.exp() / (first * _fraction(first, second, x))
    return 0.5 * torch.where(far, part, 1 - part)


def _fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The denominator: I_x(a, b) = x^a (1-x)^b / (a B(a, b)) / fraction."""

    def nonzero(value: Tensor) -> Tensor:
        return torch.where(value.abs() < _TINY, torch.full_like(value, _TINY), value)

    value = torch.ones_like(x)
    c, d = value, torch.zeros_like(x)
    for n in range(1, _ROUNDS):
        m = n // 2
        if n % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / nonzero(1 + term * d)
        c = nonzero(1 + term / c)
        value = value * c * d
        if ((c * d - 1).abs() <= 1e-15).all():
            break
    return value

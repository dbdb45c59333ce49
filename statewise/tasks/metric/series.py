"""Forecasts of real values: of the point, of the whole distribution, of intervals.

All arrays have the target's shape, samples and quantiles one more axis. A target that is missing (NaN) is not
counted; a forecast that is NaN where the target is known is refused. S samples, Q levels.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from statewise.kernels import student_t
from statewise.specs import UserError

Array = NDArray[np.float64]


class Interval(NamedTuple):
    coverage: float  # the share of targets inside
    width: float  # the mean; at equal coverage the narrower the better


def crps_gaussian(target: ArrayLike, mean: ArrayLike, scale: ArrayLike) -> float:
    """`σ (z (2Φ(z) - 1) + 2φ(z) - 1/√π)` (Gneiting and Raftery 2007)."""
    y, m, s = _known(target, mean, scale)
    _check_scale(s)
    z = (y - m) / s
    cdf = torch.special.ndtr(torch.from_numpy(z)).numpy()
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return float((s * (z * (2 * cdf - 1) + 2 * density - 1 / math.sqrt(math.pi))).mean())


def crps_student(target: ArrayLike, location: ArrayLike, scale: ArrayLike, freedom: ArrayLike) -> float:
    """`σ (z (2F(z) - 1) + 2f(z) (ν + z²)/(ν - 1) - 2√ν/(ν - 1) · B(½, ν - ½)/B(½, ν/2)²)` for ν > 1.

    Jordan, Krüger and Lerch 2019.
    """
    y, m, s, nu = _known(target, location, scale, freedom)
    if (nu <= 1).any():
        raise UserError(f"freedom {nu.min():.6g} has no CRPS, expected more than 1")
    _check_scale(s)
    z = (y - m) / s
    z_tensor, nu_tensor = torch.from_numpy(z), torch.from_numpy(nu)
    cdf = student_t.cdf(z_tensor, nu_tensor).numpy()
    density = student_t.log_density(z_tensor, nu_tensor).exp().numpy()
    # B(½, x) = √π Γ(x)/Γ(x+½); for ν - ½ the step goes down from Γ(ν).
    log_top = 0.5 * math.log(math.pi) - student_t.half_step(nu_tensor - 0.5)
    log_below = math.log(math.pi) - 2 * student_t.half_step(nu_tensor / 2)
    spread = 2 * np.sqrt(nu) / (nu - 1) * (log_top - log_below).exp().numpy()
    return float((s * (z * (2 * cdf - 1) + 2 * density * (nu + z**2) / (nu - 1) - spread)).mean())


def _check_scale(scale: NDArray[np.float64]) -> None:
    if (scale <= 0).any():
        raise UserError(f"scale {scale.min():.6g} has no distribution, expected more than 0")


def crps_samples(target: ArrayLike, samples: ArrayLike) -> float:
    """`E|X - y| - ½ E|X - X'|` from draws `[S, ...]`, the unbiased form: X and X' are never the same draw."""
    draws = np.asarray(samples, dtype=np.float64)
    if draws.ndim < 1 or len(draws) < 2:
        raise UserError("CRPS from samples needs two or more of them along the first axis")
    y, *rows = _known(target, *draws)
    x = np.sort(np.stack(rows), axis=0)
    count = len(x)
    rank_S = np.arange(1, count + 1).reshape(-1, *[1] * (x.ndim - 1))
    apart = 2 * ((2 * rank_S - count - 1) * x).sum(0) / (count * (count - 1))  # mean |X - X'| over pairs
    return float((np.abs(x - y).mean(0) - apart / 2).mean())


def crps_quantiles(target: ArrayLike, quantiles: ArrayLike, *, levels: Sequence[float]) -> float:
    """Twice the mean pinball loss over the levels, quantiles `[..., Q]`: the integral of CRPS as a sum.

    The pinball loss of `d = y - quantile` is `max(q d, (q - 1) d)`.
    """
    values = np.asarray(quantiles, dtype=np.float64)
    if values.shape[-1:] != (len(levels),) or not levels:
        raise UserError(f"quantiles have shape {list(values.shape)}, expected {len(levels)} levels on the last axis")
    if not all(0 < level < 1 for level in levels):
        raise UserError(f"levels {','.join(f'{level:g}' for level in levels)} are not all between 0 and 1")
    y, *rows = _known(target, *np.moveaxis(values, -1, 0))
    losses = [np.maximum(q * (y - row), (q - 1) * (y - row)).mean() for q, row in zip(levels, rows)]
    return 2 * float(np.mean(losses))


def interval(target: ArrayLike, low: ArrayLike, high: ArrayLike) -> Interval:
    """How many targets lie inside (ends included), and how wide that is."""
    y, a, b = _known(target, low, high)
    if (a > b).any():
        raise UserError("an interval's low end is above its high end", fix="give them in this order: low, high")
    return Interval(float(((a <= y) & (y <= b)).mean()), float((b - a).mean()))


def _known(target: ArrayLike, *others: ArrayLike) -> list[Array]:
    """All arrays where the target is known, flat."""
    y = np.asarray(target, dtype=np.float64)
    known = ~np.isnan(y)
    if not known.any():
        raise UserError("every target is missing: there is nothing to measure")
    kept = [y[known]]
    for other in others:
        values = np.asarray(other, dtype=np.float64)
        if values.shape != y.shape:
            raise UserError(f"a forecast has shape {list(values.shape)}, its target {list(y.shape)}")
        if np.isnan(values[known]).any():
            place = [int(i) for i in np.argwhere(known & np.isnan(values))[0]]
            raise UserError(f"the forecast at {place} is not a number, though the target is known")
        kept.append(values[known])
    return kept

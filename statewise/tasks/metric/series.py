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
from statewise.tasks.metric.score import Score

Array = NDArray[np.float64]


class IntervalScores(NamedTuple):
    coverage: Score  # the share of targets inside
    width: Score  # the mean; at equal coverage the narrower the better


def mse(target: ArrayLike, forecast: ArrayLike) -> Score:
    y, f = _known(target, forecast)
    return _mean("MSE", (y - f) ** 2)


def mae(target: ArrayLike, forecast: ArrayLike) -> Score:
    y, f = _known(target, forecast)
    return _mean("MAE", np.abs(y - f))


def smape(target: ArrayLike, forecast: ArrayLike) -> Score:
    """`200 · |y - f| / (|y| + |f|)`, 0 to 200 as in the M4 competition; 0 where both are 0."""
    y, f = _known(target, forecast)
    size = np.abs(y) + np.abs(f)
    return _mean("sMAPE", 200 * np.abs(y - f) / np.where(size > 0, size, 1), signature="0-200")


def mase_scale(train_TC: ArrayLike, *, period: int = 1) -> Array:
    """The mean error of the seasonal-naive forecast on the training part, one a channel (Hyndman and Koehler 2006)."""
    train = np.asarray(train_TC, dtype=np.float64)
    train = train[:, None] if train.ndim == 1 else train
    if not 1 <= period < len(train):
        raise UserError(f"period = {period} does not fit into a training part of {len(train)} time steps")
    step = np.abs(train[period:] - train[:-period])
    known = ~np.isnan(step)
    scale_C: Array = np.where(known, step, 0).sum(0) / np.maximum(known.sum(0), 1)
    if not (scale_C > 0).all():
        channel = int(np.argmin(scale_C > 0))
        raise UserError(
            f"channel {channel} of the training part repeats itself exactly every {period} time steps (or is missing), "
            "so MASE would divide by 0",
            fix="leave the channel out, or choose another period",
        )
    return scale_C


def mase(target: ArrayLike, forecast: ArrayLike, *, train_TC: ArrayLike, period: int = 1) -> Score:
    """The absolute error in units of the seasonal-naive forecast's on the training part; channels are the last axis."""
    scale_C = mase_scale(train_TC, period=period)
    if np.ndim(train_TC) == 2 and np.shape(target)[-1:] != scale_C.shape:
        raise UserError(f"the target has shape {list(np.shape(target))}, the training part {len(scale_C)} channels")
    y, f, scale = _known(target, forecast, np.broadcast_to(scale_C, np.shape(target)))
    return _mean("MASE", np.abs(y - f) / scale, signature=f"period:{period}")


def crps_gaussian(target: ArrayLike, mean: ArrayLike, scale: ArrayLike) -> Score:
    """`σ (z (2Φ(z) - 1) + 2φ(z) - 1/√π)` (Gneiting and Raftery 2007)."""
    y, m, s = _known(target, mean, scale)
    _check_scale(s)
    z = (y - m) / s
    cdf = torch.special.ndtr(torch.from_numpy(z)).numpy()
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return _mean("CRPS", s * (z * (2 * cdf - 1) + 2 * density - 1 / math.sqrt(math.pi)), signature="exact")


def crps_student(target: ArrayLike, location: ArrayLike, scale: ArrayLike, freedom: ArrayLike) -> Score:
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
    return _mean("CRPS", s * (z * (2 * cdf - 1) + 2 * density * (nu + z**2) / (nu - 1) - spread), signature="exact")


def _check_scale(scale: NDArray[np.float64]) -> None:
    if (scale <= 0).any():
        raise UserError(f"scale {scale.min():.6g} has no distribution, expected more than 0")


def crps_samples(target: ArrayLike, samples: ArrayLike) -> Score:
    """`E|X - y| - ½ E|X - X'|` from draws `[S, ...]`, the unbiased form: X and X' are never the same draw."""
    draws = np.asarray(samples, dtype=np.float64)
    if draws.ndim < 1 or len(draws) < 2:
        raise UserError("CRPS from samples needs two or more of them along the first axis")
    y, *rows = _known(target, *draws)
    x = np.sort(np.stack(rows), axis=0)
    count = len(x)
    rank_S = np.arange(1, count + 1).reshape(-1, *[1] * (x.ndim - 1))
    apart = 2 * ((2 * rank_S - count - 1) * x).sum(0) / (count * (count - 1))  # mean |X - X'| over pairs
    return _mean("CRPS", np.abs(x - y).mean(0) - apart / 2, signature=f"samples:{count}|unbiased")


def crps_quantiles(target: ArrayLike, quantiles: ArrayLike, *, levels: Sequence[float]) -> Score:
    """Twice the mean pinball loss over the levels, quantiles `[..., Q]`: the integral of CRPS as a sum."""
    loss, count = _pinball(target, quantiles, levels)
    return Score("CRPS", 2 * loss, False, f"levels:{_listed(levels)}", count)


def pinball(target: ArrayLike, quantiles: ArrayLike, *, levels: Sequence[float]) -> Score:
    """`max(q d, (q - 1) d)` of `d = y - quantile`, a mean over values and levels, quantiles `[..., Q]`."""
    loss, count = _pinball(target, quantiles, levels)
    return Score("pinball", loss, False, f"levels:{_listed(levels)}", count)


def interval(target: ArrayLike, low: ArrayLike, high: ArrayLike, *, nominal: float) -> IntervalScores:
    """How many targets lie inside (ends included) of what should hold a share `nominal`, and how wide it is."""
    y, a, b = _known(target, low, high)
    if (a > b).any():
        raise UserError("an interval's low end is above its high end", fix="give them in this order: low, high")
    signature = f"nominal:{nominal:g}"
    inside = ((a <= y) & (y <= b)).astype(np.float64)
    return IntervalScores(
        Score("coverage", float(inside.mean()), None, signature, y.size),
        Score("interval width", float((b - a).mean()), False, signature, y.size),
    )


def _pinball(target: ArrayLike, quantiles: ArrayLike, levels: Sequence[float]) -> tuple[float, int]:
    values = np.asarray(quantiles, dtype=np.float64)
    if values.shape[-1:] != (len(levels),) or not levels:
        raise UserError(f"quantiles have shape {list(values.shape)}, expected {len(levels)} levels on the last axis")
    if not all(0 < level < 1 for level in levels):
        raise UserError(f"levels {_listed(levels)} are not all between 0 and 1")
    y, *rows = _known(target, *np.moveaxis(values, -1, 0))
    losses = [np.maximum(q * (y - row), (q - 1) * (y - row)).mean() for q, row in zip(levels, rows)]
    return float(np.mean(losses)), y.size


def _listed(levels: Sequence[float]) -> str:
    return ",".join(f"{level:g}" for level in levels)


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


def _mean(name: str, losses: Array, *, signature: str = "mean") -> Score:
    return Score(name, float(losses.mean()), False, signature, losses.size)

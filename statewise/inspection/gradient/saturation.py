"""Why attention divides by √k: what a softmax over dot products of k numbers does without it.

N draws, S keys, K width of a head.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Saturation(NamedTuple):
    """By width: the largest weight, and the norm of the softmax's Jacobian, in the mean over draws."""

    widths: tuple[int, ...]
    largest: tuple[float, ...]
    gradient: tuple[float, ...]


@cache  # of no model: it is the same on every page
def saturation(*, scaled: bool, keys: int, draws: int, seed: int = 0) -> Saturation:
    """Queries and keys of independent numbers with variance 1, as layers have them when training begins."""
    generator = torch.Generator().manual_seed(seed)
    largest, gradient = [], []
    for width in WIDTHS:
        q_NK = torch.randn(draws, width, dtype=torch.float64, generator=generator)
        k_NSK = torch.randn(draws, keys, width, dtype=torch.float64, generator=generator)
        scores_NS = (k_NSK @ q_NK[:, :, None])[..., 0] * (1 / math.sqrt(width) if scaled else 1.0)
        weights_NS = scores_NS.softmax(-1)
        largest.append(float(weights_NS.amax(-1).mean()))
        gradient.append(float(jacobian_norm(weights_NS).mean()))
    return Saturation(WIDTHS, tuple(largest), tuple(gradient))


def jacobian_norm(weights_NS: Tensor) -> Tensor:
    """Frobenius norm of `diag(a) - a aᵀ`, in closed form: `Σ a² - 2 Σ a³ + (Σ a²)²` under a root."""
    square_N = weights_NS.square().sum(-1)
    cube_N = weights_NS.pow(3).sum(-1)
    return (square_N - 2 * cube_N + square_N.square()).clamp(min=0).sqrt()

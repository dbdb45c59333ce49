"""Choosing the next token: each filter removes what it must from the logits, then one draw.

B batch, V vocabulary.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from statewise.kernels.argmax import argmax
from statewise.runtime import uniforms
from statewise.specs import UserError

_COLDEST = 1e-30


class Sampling(NamedTuple):
    """How `generate` draws the next token; `temperature=0` takes the most likely one.

    The filters apply in the order of the fields, as in most servers. The same seed gives the same text.

    >>> run = sw.load("runs/lstm")
    >>> sampling = sw.Sampling(temperature=0.8, top_k=5, seed=1)
    >>> run.generate("the ", tokens=9, sampling=sampling) == run.generate("the ", tokens=9, sampling=sampling)
    True
    """

    repetition: float = 1.0  # > 1 makes tokens that were read or written before less likely
    temperature: float = 1.0
    top_k: int | None = None  # the k most likely
    top_p: float | None = None  # the fewest tokens whose probabilities reach p
    min_p: float | None = None  # those at least min_p times as likely as the most likely
    seed: int = 0

    def check(self) -> "Sampling":
        limits = {
            "repetition": (self.repetition, 0 < self.repetition < 1e6, "a positive number"),
            "temperature": (self.temperature, 0 <= self.temperature < 1e6, "0 (greedy) or a positive number"),
            "top_k": (self.top_k, self.top_k is None or self.top_k >= 1, "at least 1"),
            "top_p": (self.top_p, self.top_p is None or 0 < self.top_p <= 1, "above 0, at most 1"),
            "min_p": (self.min_p, self.min_p is None or 0 <= self.min_p <= 1, "between 0 and 1"),
            "seed": (self.seed, 0 <= self.seed < 2**63, "between 0 and 2^63 - 1"),
        }
        for name, (value, valid, expected) in limits.items():
            if not valid:
                raise UserError(f"{name} = {value} is not valid, expected {expected}")
        return self


def penalise(logits_BV: Tensor, seen_BV: Tensor, penalty: float) -> Tensor:
    """Push down what was seen (Keskar et al. 2019): positive logits are divided, negative ones multiplied."""
    if penalty == 1.0:
        return logits_BV
    pushed_BV = torch.where(logits_BV > 0, logits_BV / penalty, logits_BV * penalty)
    return torch.where(seen_BV, pushed_BV, logits_BV)


def keep_top_k(logits_BV: Tensor, k: int) -> Tensor:
    """Ties with the k-th stay out: exactly k remain."""
    k = min(k, logits_BV.shape[-1])
    kept_BK = logits_BV.topk(k, dim=-1).indices
    return torch.full_like(logits_BV, -torch.inf).scatter(-1, kept_BK, logits_BV.gather(-1, kept_BK))


def keep_top_p(logits_BV: Tensor, p: float) -> Tensor:
    """The nucleus: most likely first, until their probabilities reach p; always at least one."""
    sorted_BV, order_BV = logits_BV.sort(dim=-1, descending=True, stable=True)
    probability_BV = sorted_BV.double().softmax(-1)  # double: over many tokens, rounding would pass p = 1 too soon
    outside_BV = (probability_BV.cumsum(-1) - probability_BV) >= p
    outside_BV[:, 0] = False
    return logits_BV.masked_fill(outside_BV.gather(-1, order_BV.argsort(-1)), -torch.inf)


def keep_min_p(logits_BV: Tensor, share: float) -> Tensor:
    probabilities_BV = logits_BV.softmax(-1)
    return logits_BV.masked_fill(probabilities_BV < share * probabilities_BV.amax(-1, keepdim=True), -torch.inf)


def filtered(logits_BV: Tensor, seen_BV: Tensor, sampling: Sampling) -> Tensor:
    """The logits a token is drawn from."""
    logits_BV = penalise(logits_BV.float(), seen_BV, sampling.repetition)
    if sampling.temperature > 0:
        # Relative to the maximum, and never divided by a float32 zero: the best stays 0 at any temperature.
        logits_BV = (logits_BV - logits_BV.amax(-1, keepdim=True)) / max(sampling.temperature, _COLDEST)
    if sampling.top_k is not None:
        logits_BV = keep_top_k(logits_BV, sampling.top_k)
    if sampling.top_p is not None:
        logits_BV = keep_top_p(logits_BV, sampling.top_p)
    if sampling.min_p is not None:
        logits_BV = keep_min_p(logits_BV, sampling.min_p)
    return logits_BV


def best(logits_BV: Tensor, seen_BV: Tensor, sampling: Sampling) -> Tensor:
    """The most likely token. Filters never remove it, so nothing is normalised, sorted or summed."""
    if sampling.repetition != 1.0:
        logits_BV = penalise(logits_BV.float(), seen_BV, sampling.repetition)
    return argmax(logits_BV)


def drawn(logits_BV: Tensor, seen_BV: Tensor, below_B1: Tensor, sampling: Sampling) -> Tensor:
    """One token a row through the filters: the first whose cumulative probability exceeds `below_B1`."""
    cumulative_BV = filtered(logits_BV, seen_BV, sampling).double().softmax(-1).cumsum(-1)
    # Scaled by the last entry, so that rounding cannot leave the draw beyond the end.
    return (cumulative_BV <= below_B1 * cumulative_BV[:, -1:]).sum(-1).clamp(max=logits_BV.shape[-1] - 1)


def has_best(logits_BV: Tensor) -> Tensor:
    """Whether every row has a most likely token: not if it holds NaN or infinity, or if all tokens are forbidden."""
    return logits_BV.amax(-1).isfinite().all()


def choose(logits_BV: Tensor, *, seen_BV: Tensor, position_B: Tensor, sampling: Sampling) -> Tensor:
    """One token a row. The draw is a function of (seed, position): other rows and interruptions do not change it."""
    if sampling.temperature == 0:
        return best(logits_BV, seen_BV, sampling)
    noise = uniforms(position_B.tolist(), sampling.seed)
    below_B1 = torch.tensor(noise, dtype=torch.float64, device=logits_BV.device)[:, None]
    return drawn(logits_BV, seen_BV, below_B1, sampling)

"""Choosing the next token: each filter removes what it must from the logits, then one draw. Every row has its own way.

B batch, V vocabulary. A filter's number is one for all rows, or `[B, 1]`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from statewise.kernels.argmax import argmax
from statewise.runtime import random_bits
from statewise.specs import UserError

_COLDEST = 1e-30


class Sampling(NamedTuple):
    """How `generate` draws the next token; `temperature=0` takes the most likely one.

    The filters apply in the order of the fields, as in most servers; the penalties of `presence` and `frequency` and
    the `bias` of single tokens come right after `repetition`. The same seed gives the same text.

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
    presence: float = 0.0  # subtracted from the logits of tokens that were generated
    frequency: float = 0.0  # subtracted as often as they were generated
    bias: tuple[tuple[int, float], ...] = ()  # (token, what is added to its logit)

    def check(self) -> "Sampling":
        limits = {
            "repetition": (self.repetition, 0 < self.repetition < 1e6, "a positive number"),
            "temperature": (self.temperature, 0 <= self.temperature < 1e6, "0 (greedy) or a positive number"),
            "top_k": (self.top_k, self.top_k is None or self.top_k >= 1, "at least 1"),
            "top_p": (self.top_p, self.top_p is None or 0 < self.top_p <= 1, "above 0, at most 1"),
            "min_p": (self.min_p, self.min_p is None or 0 <= self.min_p <= 1, "between 0 and 1"),
            "seed": (self.seed, 0 <= self.seed < 2**63, "between 0 and 2^63 - 1"),
            "presence": (self.presence, abs(self.presence) < 1e6, "a number"),
            "frequency": (self.frequency, abs(self.frequency) < 1e6, "a number"),
            "bias": (self.bias, all(token >= 0 and abs(add) < 1e6 for token, add in self.bias), "tokens with numbers"),
        }
        for name, (value, valid, expected) in limits.items():
            if not valid:
                raise UserError(f"{name} = {value} is not valid, expected {expected}")
        return self


class RowSampling(NamedTuple):
    """The `Sampling` of each row of a batch, as tensors: rows of one batch need not agree. None: no row uses it."""

    seed_B: Tensor
    temperature_B1: Tensor | None  # None: every row takes the most likely token
    any_greedy: bool = False  # with temperatures: some row takes the most likely token
    repetition_B1: Tensor | None = None
    presence_B1: Tensor | None = None
    frequency_B1: Tensor | None = None
    bias_BV: Tensor | None = None
    top_k_B1: Tensor | None = None
    top_p_B1: Tensor | None = None
    min_p_B1: Tensor | None = None

    @property
    def counts(self) -> bool:
        """Whether it asks how often each token was generated."""
        return self.presence_B1 is not None or self.frequency_B1 is not None


def by_row(samplings: Sequence[Sampling], *, vocab: int, device: torch.device) -> RowSampling:
    """One `Sampling` for each row."""

    def column(values: Sequence[float], unused: float, dtype: torch.dtype = torch.float32) -> Tensor | None:
        if all(value == unused for value in values):
            return None
        return torch.tensor(values, dtype=dtype, device=device)[:, None]

    bias_BV = None
    if any(each.bias for each in samplings):
        bias_BV = torch.zeros(len(samplings), vocab, device=device)
        for row, each in enumerate(samplings):
            for token, add in each.bias:
                bias_BV[row, token] = add
    return RowSampling(
        seed_B=torch.tensor([each.seed for each in samplings], device=device),
        temperature_B1=column([each.temperature for each in samplings], 0.0),
        any_greedy=any(each.temperature == 0 for each in samplings),
        repetition_B1=column([each.repetition for each in samplings], 1.0),
        presence_B1=column([each.presence for each in samplings], 0.0),
        frequency_B1=column([each.frequency for each in samplings], 0.0),
        bias_BV=bias_BV,
        top_k_B1=column([each.top_k or vocab for each in samplings], vocab, torch.int64),
        top_p_B1=column([each.top_p or 1.0 for each in samplings], 1.0, torch.float64),
        min_p_B1=column([each.min_p or 0.0 for each in samplings], 0.0),
    )


def penalise(logits_BV: Tensor, seen_BV: Tensor, penalty: float | Tensor) -> Tensor:
    """Push down what was seen (Keskar et al. 2019): positive logits are divided, negative ones multiplied."""
    pushed_BV = torch.where(logits_BV > 0, logits_BV / penalty, logits_BV * penalty)
    return torch.where(seen_BV, pushed_BV, logits_BV)


def keep_top_k(logits_BV: Tensor, k: int | Tensor) -> Tensor:
    """Of those tied with the k-th the first stay: exactly k remain."""
    rank_BV = logits_BV.argsort(dim=-1, descending=True, stable=True).argsort(-1)
    return logits_BV.masked_fill(rank_BV >= k, -torch.inf)


def keep_top_p(logits_BV: Tensor, p: float | Tensor) -> Tensor:
    """The nucleus: most likely first, until their probabilities reach p; always at least one."""
    sorted_BV, order_BV = logits_BV.sort(dim=-1, descending=True, stable=True)
    probability_BV = sorted_BV.double().softmax(-1)  # double: over many tokens, rounding would pass p = 1 too soon
    outside_BV = (probability_BV.cumsum(-1) - probability_BV) >= p
    outside_BV[:, 0] = False
    return logits_BV.masked_fill(outside_BV.gather(-1, order_BV.argsort(-1)), -torch.inf)


def keep_min_p(logits_BV: Tensor, share: float | Tensor) -> Tensor:
    probabilities_BV = logits_BV.softmax(-1)
    return logits_BV.masked_fill(probabilities_BV < share * probabilities_BV.amax(-1, keepdim=True), -torch.inf)


def penalised(logits_BV: Tensor, seen_BV: Tensor, count_BV: Tensor | None, ways: RowSampling) -> Tensor:
    """The logits after what was seen and generated, and the bias of single tokens, were taken into account."""
    if ways.repetition_B1 is not None or ways.counts or ways.bias_BV is not None:
        logits_BV = logits_BV.float()
    if ways.repetition_B1 is not None:
        logits_BV = penalise(logits_BV, seen_BV, ways.repetition_B1)
    if count_BV is not None and ways.presence_B1 is not None:
        logits_BV = logits_BV - ways.presence_B1 * (count_BV > 0)
    if count_BV is not None and ways.frequency_B1 is not None:
        logits_BV = logits_BV - ways.frequency_B1 * count_BV
    return logits_BV if ways.bias_BV is None else logits_BV + ways.bias_BV


def filtered(logits_BV: Tensor, ways: RowSampling) -> Tensor:
    """The logits that a token is drawn from, once they are penalised."""
    if ways.temperature_B1 is not None:
        # Relative to the maximum, and never divided by a float32 zero: the best stays 0 at any temperature.
        logits_BV = logits_BV.float()
        logits_BV = (logits_BV - logits_BV.amax(-1, keepdim=True)) / ways.temperature_B1.clamp(min=_COLDEST)
    if ways.top_k_B1 is not None:
        logits_BV = keep_top_k(logits_BV, ways.top_k_B1)
    if ways.top_p_B1 is not None:
        logits_BV = keep_top_p(logits_BV, ways.top_p_B1)
    if ways.min_p_B1 is not None:
        logits_BV = keep_min_p(logits_BV, ways.min_p_B1)
    return logits_BV


def draw(
    logits_BV: Tensor, ways: RowSampling, *, below_B1: Tensor | None, seen_BV: Tensor, count_BV: Tensor | None = None
) -> Tensor:
    """One token a row, through its filters: the first whose cumulative probability exceeds `below_B1`, or the best.

    `count_BV` is how often each token was generated: needed where `ways.counts`. Where every row is greedy nothing is
    normalised, sorted or summed: filters never remove the best.
    """
    logits_BV = penalised(logits_BV, seen_BV, count_BV, ways)
    if ways.temperature_B1 is None or below_B1 is None:
        return argmax(logits_BV)
    cumulative_BV = filtered(logits_BV, ways).double().softmax(-1).cumsum(-1)
    # Scaled by the last entry, so that rounding cannot leave the draw beyond the end.
    drawn_B = (cumulative_BV <= below_B1 * cumulative_BV[:, -1:]).sum(-1).clamp(max=logits_BV.shape[-1] - 1)
    return torch.where(ways.temperature_B1[:, 0] > 0, drawn_B, argmax(logits_BV)) if ways.any_greedy else drawn_B


def uniforms(seed: Tensor, position: Tensor) -> Tensor:
    """A random number in [0, 1) for each seed and position, in float64, wherever these are."""
    bits: Tensor = random_bits(seed, position)
    return bits.double() * 2.0**-53


def has_best(logits_BV: Tensor) -> Tensor:
    """Whether every row has a most likely token: not if it holds NaN or infinity, or if all tokens are forbidden."""
    return logits_BV.amax(-1).isfinite().all()


def choose(
    logits_BV: Tensor, *, seen_BV: Tensor, position_B: Tensor, sampling: Sampling, count_BV: Tensor | None = None
) -> Tensor:
    """One token a row. The draw is a function of (seed, position): other rows and interruptions do not change it."""
    ways = by_row([sampling], vocab=logits_BV.shape[-1], device=logits_BV.device)  # one row serves all
    below_B1 = None if ways.temperature_B1 is None else uniforms(ways.seed_B, position_B)[:, None]
    return draw(logits_BV, ways, below_B1=below_B1, seen_BV=seen_BV, count_BV=count_BV)

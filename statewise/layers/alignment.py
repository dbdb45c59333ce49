"""From scores to weights: where attention looks, given how well each place answers.

B batch, T queries, S source positions, Q query width.
"""

import math
from abc import ABC, abstractmethod
from typing import assert_never, final

import torch
from torch import Tensor, nn

from statewise.specs import AlignmentKind


class Alignment(nn.Module, ABC):
    """Weights over the source, none of them past a row's end, none of them on rows that are empty."""

    @abstractmethod
    def forward(self, scores_BTS: Tensor, query_BTQ: Tensor, position_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """`position_BT` is the number of each query in its own sequence (only the local forms look at it)."""

    def __call__(self, scores_BTS: Tensor, query_BTQ: Tensor, position_BT: Tensor, lengths_B: Tensor) -> Tensor:
        weights_BTS: Tensor = super().__call__(scores_BTS, query_BTQ, position_BT, lengths_B)
        return weights_BTS


def inside(scores_BTS: Tensor, lengths_B: Tensor) -> Tensor:
    """`[B, 1, S]`: true at positions of the source that exist."""
    return torch.arange(scores_BTS.shape[-1], device=scores_BTS.device) < lengths_B[:, None, None]


def masked_softmax(scores_BTS: Tensor, allowed: Tensor) -> Tensor:
    """Softmax over what is allowed; 0 everywhere where nothing is."""
    weights_BTS = scores_BTS.masked_fill(~allowed, -torch.inf).softmax(-1)
    return weights_BTS.masked_fill(~allowed.any(-1, keepdim=True), 0.0)


@final
class Soft(Alignment):
    """Softmax: every place gets a share (Bahdanau et al. 2015)."""

    def forward(self, scores_BTS: Tensor, query_BTQ: Tensor, position_BT: Tensor, lengths_B: Tensor) -> Tensor:
        return masked_softmax(scores_BTS, inside(scores_BTS, lengths_B))


@final
class Sparsemax(Alignment):
    """The nearest point of the simplex (Martins and Astudillo 2016): most places get exactly nothing."""

    def forward(self, scores_BTS: Tensor, query_BTQ: Tensor, position_BT: Tensor, lengths_B: Tensor) -> Tensor:
        allowed_B1S = inside(scores_BTS, lengths_B)
        return sparsemax(scores_BTS, allowed_B1S)


def sparsemax(scores: Tensor, allowed: Tensor) -> Tensor:
    """`max(s - τ, 0)` with τ such that the weights sum to 1; found by sorting.

    With z sorted downwards, k = the largest number for which `1 + k z_k > z_1 + … + z_k`, and
    `τ = (z_1 + … + z_k - 1) / k`.
    """
    lowest = torch.finfo(scores.dtype).min / 4
    z = scores.masked_fill(~allowed, lowest).sort(dim=-1, descending=True).values
    count = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
    supported = (1 + count * z > z.cumsum(-1)) & (z > lowest / 2)
    k = supported.sum(-1, keepdim=True).clamp(min=1)
    tau = (z.masked_fill(~supported, 0.0).sum(-1, keepdim=True) - 1) / k
    return (scores - tau).clamp(min=0).masked_fill(~allowed, 0.0)


@final
class LocalMonotonic(Alignment):
    """Softmax inside a window around the query's own position (Luong's local-m)."""

    def __init__(self, *, reach: int) -> None:
        super().__init__()
        self.reach = reach

    def forward(self, scores_BTS: Tensor, query_BTQ: Tensor, position_BT: Tensor, lengths_B: Tensor) -> Tensor:
        centre_BT1 = torch.minimum(position_BT, (lengths_B - 1).clamp(min=0)[:, None])[:, :, None]
        at_S = torch.arange(scores_BTS.shape[-1], device=scores_BTS.device)
        near_BTS = (at_S - centre_BT1).abs() <= self.reach
        return masked_softmax(scores_BTS, near_BTS & inside(scores_BTS, lengths_B))


@final
class LocalPredictive(Alignment):
    """Softmax inside a window around a predicted place, times a bell around it (Luong's local-p).

    `p = S · σ(vᵀ tanh(W q))`, bell `exp(-(s - p)² / 2σ²)` with σ = reach / 2.
    """

    def __init__(self, query_width: int, *, reach: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.reach = reach
        self.w_QQ = nn.Parameter(torch.empty(query_width, query_width))
        self.v_Q = nn.Parameter(torch.empty(query_width))
        nn.init.xavier_uniform_(self.w_QQ, generator=generator)
        nn.init.normal_(self.v_Q, std=1 / math.sqrt(query_width), generator=generator)

    def forward(self, scores_BTS: Tensor, query_BTQ: Tensor, position_BT: Tensor, lengths_B: Tensor) -> Tensor:
        last_B1 = (lengths_B - 1).clamp(min=0)[:, None]
        centre_BT1 = (last_B1 * torch.sigmoid(torch.tanh(query_BTQ @ self.w_QQ.mT) @ self.v_Q))[:, :, None]
        at_S = torch.arange(scores_BTS.shape[-1], device=scores_BTS.device)
        away_BTS = at_S - centre_BT1
        near_BTS = away_BTS.abs() <= self.reach
        weights_BTS = masked_softmax(scores_BTS, near_BTS & inside(scores_BTS, lengths_B))
        return weights_BTS * torch.exp(-2 * (away_BTS / self.reach).square())


@final
class Hard(Alignment):
    """One place, drawn from the softmax while training, the likeliest otherwise (Xu et al. 2015).

    The draw has no gradient of its own. `straight_through` lends it the softmax's: what goes forward is
    the choice, what comes back is as if it had been soft (biased, little variance). For the unbiased
    estimator take `log_probability` of the choice and `score_function_loss`.
    """

    def forward(self, scores_BTS: Tensor, query_BTQ: Tensor, position_BT: Tensor, lengths_B: Tensor) -> Tensor:
        soft_BTS = masked_softmax(scores_BTS, inside(scores_BTS, lengths_B))
        if self.training:
            exists = soft_BTS.sum(-1, keepdim=True) > 0
            drawn = torch.multinomial(torch.where(exists, soft_BTS, 1.0).flatten(0, 1), 1).view(*soft_BTS.shape[:2], 1)
            choice_BTS = torch.zeros_like(soft_BTS).scatter(-1, drawn, 1.0) * exists
        else:
            choice_BTS = torch.zeros_like(soft_BTS).scatter(-1, soft_BTS.argmax(-1, keepdim=True), 1.0)
            choice_BTS = choice_BTS * (soft_BTS > 0)
        return choice_BTS.detach() + soft_BTS - soft_BTS.detach()


def log_probability(scores_BTS: Tensor, choice_BTS: Tensor, lengths_B: Tensor) -> Tensor:
    """`log p` of the place that was chosen, `[B, T]`."""
    allowed_B1S = inside(scores_BTS, lengths_B)
    log_p_BTS = scores_BTS.masked_fill(~allowed_B1S, -torch.inf).log_softmax(-1)
    return torch.where(choice_BTS.detach() > 0.5, log_p_BTS, 0.0).sum(-1)


def score_function_loss(log_probability_BT: Tensor, cost_BT: Tensor, *, baseline: Tensor | float = 0.0) -> Tensor:
    """Its gradient is an unbiased estimate of that of the expected cost (Williams 1992), for any baseline."""
    return (log_probability_BT * (cost_BT.detach() - baseline)).sum()


def make_alignment(
    kind: AlignmentKind, *, query_width: int, reach: int = 4, generator: torch.Generator | None = None
) -> Alignment:
    match kind:
        case "soft":
            return Soft()
        case "sparsemax":
            return Sparsemax()
        case "local_monotonic":
            return LocalMonotonic(reach=reach)
        case "local_predictive":
            return LocalPredictive(query_width, reach=reach, generator=generator)
        case "hard":
            return Hard()
        case _:
            assert_never(kind)

"""The linear chain of tags, written out (Lafferty, McCallum and Pereira 2001; Rabiner 1989 for the recursions).

    score(y)   = start[y_1] + Σ_t emission[t, y_t] + Σ_t transition[y_t, y_t+1] + end[y_T]
    α_t[k]     = emission[t, k] + log Σ_j exp(α_t-1[j] + transition[j, k])        what leads to k
    β_t[j]     = log Σ_k exp(transition[j, k] + emission[t+1, k] + β_t+1[k])      what follows j
    log Z      = log Σ_k exp(α_T[k] + end[k])
    p(y_t = k) = exp(α_t[k] + β_t[k] - log Z)

A score of -∞ forbids: a transition, a start or an end. B batch, T time, K tags.
A row of length 0 has one path, the empty one, of score 0.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class CRFWeights(NamedTuple):
    transition_KK: Tensor  # [from, to]
    start_K: Tensor
    end_K: Tensor


def safe_logsumexp(x: Tensor, dim: int) -> Tensor:
    """-∞ where all terms are -∞, and there a gradient of 0; `torch.logsumexp` has NaN for it."""
    top = x.detach().amax(dim, keepdim=True)
    top = torch.where(torch.isfinite(top), top, torch.zeros_like(top))
    total = (x - top).exp().sum(dim)
    some = total != 0  # NaN is no sum of nothing
    logarithm = torch.where(some, total, torch.ones_like(total)).log() + top.squeeze(dim)
    return torch.where(some, logarithm, torch.full_like(logarithm, -torch.inf))


def _inside(emissions_BTK: Tensor, lengths_B: Tensor) -> Tensor:
    return torch.arange(emissions_BTK.shape[1], device=emissions_BTK.device) < lengths_B[:, None]


def _forward(emissions_BTK: Tensor, weights: CRFWeights, lengths_B: Tensor) -> list[Tensor]:
    """α at every time step; past a row's end it stays what it was there."""
    alpha_BK = weights.start_K + emissions_BTK[:, 0]
    alphas = [alpha_BK]
    for t in range(1, emissions_BTK.shape[1]):
        new_BK = safe_logsumexp(alpha_BK[:, :, None] + weights.transition_KK, 1) + emissions_BTK[:, t]
        alpha_BK = torch.where((t < lengths_B)[:, None], new_BK, alpha_BK)
        alphas.append(alpha_BK)
    return alphas


def _backward(emissions_BTK: Tensor, weights: CRFWeights, lengths_B: Tensor) -> list[Tensor]:
    """β at every time step; it begins with `end` at each row's own last time step."""
    end_BK = weights.end_K.expand_as(emissions_BTK[:, 0])
    beta_BK = end_BK
    betas = [beta_BK]
    for t in range(emissions_BTK.shape[1] - 1, 0, -1):
        following_BK = emissions_BTK[:, t] + beta_BK
        new_BK = safe_logsumexp(weights.transition_KK + following_BK[:, None, :], 2)
        beta_BK = torch.where((t < lengths_B)[:, None], new_BK, end_BK)
        betas.append(beta_BK)
    return betas[::-1]


def log_partition(emissions_BTK: Tensor, weights: CRFWeights, lengths_B: Tensor) -> Tensor:
    alpha_BK = _forward(emissions_BTK, weights, lengths_B)[-1]
    total_B = safe_logsumexp(alpha_BK + weights.end_K, 1)
    return torch.where(lengths_B > 0, total_B, torch.zeros_like(total_B))


def marginals(emissions_BTK: Tensor, weights: CRFWeights, lengths_B: Tensor) -> Tensor:
    alphas = _forward(emissions_BTK, weights, lengths_B)
    betas = _backward(emissions_BTK, weights, lengths_B)
    # log Z is the same sum at every time step; taken there, its rounding cancels however large the scores are.
    p_BTK = (torch.stack(alphas, 1) + torch.stack(betas, 1)).softmax(2)
    return torch.where(_inside(emissions_BTK, lengths_B)[:, :, None], p_BTK, torch.zeros_like(p_BTK))


def path_score(emissions_BTK: Tensor, tags_BT: Tensor, weights: CRFWeights, lengths_B: Tensor) -> Tensor:
    inside_BT = _inside(emissions_BTK, lengths_B)
    tags_BT = torch.where(inside_BT, tags_BT, torch.zeros_like(tags_BT))
    emission_BT = emissions_BTK.gather(2, tags_BT[:, :, None]).squeeze(2)
    step_BT = weights.transition_KK[tags_BT[:, :-1], tags_BT[:, 1:]]
    last_B = tags_BT.gather(1, (lengths_B - 1).clamp(min=0)[:, None]).squeeze(1)
    score_B = weights.start_K[tags_BT[:, 0]] + weights.end_K[last_B]
    score_B = score_B + torch.where(inside_BT, emission_BT, torch.zeros_like(emission_BT)).sum(1)
    score_B = score_B + torch.where(inside_BT[:, 1:], step_BT, torch.zeros_like(step_BT)).sum(1)
    return torch.where(lengths_B > 0, score_B, torch.zeros_like(score_B))


def best_path(emissions_BTK: Tensor, weights: CRFWeights, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
    """Viterbi 1967: the recursion of α with the largest term in place of the sum, and where it came from."""
    delta_BK = weights.start_K + emissions_BTK[:, 0]
    stay_BK = torch.arange(delta_BK.shape[1], device=delta_BK.device).expand_as(delta_BK)
    origins = []
    for t in range(1, emissions_BTK.shape[1]):
        new_BK, origin_BK = (delta_BK[:, :, None] + weights.transition_KK).max(1)
        active_B1 = (t < lengths_B)[:, None]
        delta_BK = torch.where(active_B1, new_BK + emissions_BTK[:, t], delta_BK)
        origins.append(torch.where(active_B1, origin_BK, stay_BK))
    score_B, tag_B = (delta_BK + weights.end_K).max(1)
    tags = [tag_B]
    for origin_BK in reversed(origins):
        tag_B = origin_BK.gather(1, tag_B[:, None]).squeeze(1)
        tags.append(tag_B)
    tags_BT = torch.stack(tags[::-1], 1)
    tags_BT = torch.where(_inside(emissions_BTK, lengths_B), tags_BT, torch.zeros_like(tags_BT))
    return tags_BT, torch.where(lengths_B > 0, score_B, torch.zeros_like(score_B))

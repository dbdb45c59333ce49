"""The linear-chain conditional random field: sums over all paths, the best path, the score of one.

What stands past a row's end is never read. All is computed in at least float32: sums over time lose more
digits than half precision has. There is one form, the equation; it is linear in time and in the batch.
"""

import torch
from torch import Tensor

from statewise.kernels.crf import naive
from statewise.kernels.crf.naive import CRFWeights as CRFWeights
from statewise.kernels.time_axis import no_autocast, past_end, wide


def _ready(emissions_BTK: Tensor, weights: CRFWeights, lengths_B: Tensor | None) -> tuple[Tensor, CRFWeights, Tensor]:
    if lengths_B is None:
        lengths_B = torch.full(emissions_BTK.shape[:1], emissions_BTK.shape[1], device=emissions_BTK.device)
    emissions_BTK, *rest = wide(past_end(emissions_BTK, lengths_B), *weights)
    return emissions_BTK, CRFWeights(*rest), lengths_B


def log_partition(emissions_BTK: Tensor, weights: CRFWeights, lengths_B: Tensor | None = None) -> Tensor:
    """`log Σ exp score` over all paths, `[B]`."""
    with no_autocast(emissions_BTK):
        return naive.log_partition(*_ready(emissions_BTK, weights, lengths_B))


def marginals(emissions_BTK: Tensor, weights: CRFWeights, lengths_B: Tensor | None = None) -> Tensor:
    """The probability of every tag at every time step, `[B, T, K]`; 0 past the end."""
    with no_autocast(emissions_BTK):
        return naive.marginals(*_ready(emissions_BTK, weights, lengths_B))


def path_score(emissions_BTK: Tensor, tags_BT: Tensor, weights: CRFWeights, lengths_B: Tensor | None = None) -> Tensor:
    """The score of the path given, `[B]`."""
    with no_autocast(emissions_BTK):
        emissions_BTK, weights, lengths_B = _ready(emissions_BTK, weights, lengths_B)
        return naive.path_score(emissions_BTK, tags_BT, weights, lengths_B)


@torch.no_grad()
def best_path(emissions_BTK: Tensor, weights: CRFWeights, lengths_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The path of the largest score, `[B, T]` with 0 past the end, and that score, `[B]`."""
    with no_autocast(emissions_BTK):
        return naive.best_path(*_ready(emissions_BTK, weights, lengths_B))

"""A linear read-out of states, fitted in one go by ridge regression.

B batch, T time, D width of the states, O width of the targets, N time steps that count.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from statewise.specs import UserError


class Readout(NamedTuple):
    """`y = V h + c`."""

    weight_OD: Tensor
    bias_O: Tensor

    def __call__(self, states: Tensor) -> Tensor:
        return states @ self.weight_OD.mT + self.bias_O


def fit_readout(states_BTD: Tensor, targets_BTO: Tensor, *, ridge: float = 1e-6, washout: int = 0) -> Readout:
    """The V and c that minimise `Σ |V h_t + c - target_t|² + ridge · |V|²` over all rows and time steps.

    The first `washout` time steps of each row are left out: there the state still remembers where it began.
    It is solved as a least-squares problem with `√ridge · 1` below the states, which keeps twice the
    digits of the normal equations; c is left out of the penalty by centring.
    """
    if states_BTD.shape[:2] != targets_BTO.shape[:2] or states_BTD.dim() != 3 or targets_BTO.dim() != 3:
        raise UserError(f"states {list(states_BTD.shape)} and targets {list(targets_BTO.shape)} do not go together")
    if not 0 <= washout < states_BTD.shape[1]:
        raise UserError(f"washout {washout} leaves nothing of {states_BTD.shape[1]} time steps")
    if ridge < 0:
        raise UserError(f"ridge = {ridge} is not valid, expected 0 or more")
    h_ND = states_BTD[:, washout:].flatten(0, 1).double()
    y_NO = targets_BTO[:, washout:].flatten(0, 1).double()
    mean_D, mean_O = h_ND.mean(0), y_NO.mean(0)
    penalty_DD = ridge**0.5 * torch.eye(h_ND.shape[1], dtype=h_ND.dtype, device=h_ND.device)
    left_MD = torch.cat([h_ND - mean_D, penalty_DD])
    right_MO = torch.cat([y_NO - mean_O, y_NO.new_zeros(len(penalty_DD), y_NO.shape[1])])
    weight_OD = torch.linalg.lstsq(left_MD, right_MO).solution.mT
    bias_O = mean_O - weight_OD @ mean_D
    return Readout(weight_OD.to(states_BTD.dtype), bias_O.to(states_BTD.dtype))

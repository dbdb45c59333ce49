"""Whether somebody transforms what is computed, as `torch.func` and forward-mode differentiation do."""

import torch
from torch.autograd import forward_ad


def transformed() -> bool:
    """Then an op must go through autograd's Function, which knows these callers and refuses what it has no rule for."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0

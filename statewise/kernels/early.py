"""Kernels that begin while the one before them ends: what is always there they read, for all else they wait.

A step of writing is a chain of kernels of a few microseconds, and a good part of each is its start. NVIDIA's GPUs can
start the next one before the last has ended (programmatic dependent launch, since Hopper), if it says where it needs
what the last one made. A kernel with `EARLY` lets the next begin at once, asks for weights, and then waits.
"""

from functools import cache

import torch
from torch import Tensor

SINCE = (9, 0)  # compute capability


def early(like: Tensor) -> dict[str, bool]:
    """Options of a launch. Elsewhere a kernel begins when the one before it has ended, as usual."""
    there = like.device.type == "cuda" and _begins_early(like.device.index or 0)
    return {"EARLY": True, "launch_pdl": True} if there else {"EARLY": False}


@cache
def _begins_early(device: int) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= SINCE

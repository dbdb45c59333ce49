"""Whether a model, and what its training keeps of it, fit into memory: asked before anything is allocated."""

import os
from contextlib import suppress
from pathlib import Path

import torch

from statewise.specs import TrainSpec, UserError

_MOMENTS = {"sgd": 0, "asgd": 1, "muon": 1, "adamw": 2}  # numbers that an optimiser keeps of each parameter, at least
_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container, on Linux
_GIB = 2**30


def refuse_what_does_not_fit(
    parameters: int,
    spec: TrainSpec,
    device: torch.device,
    *,
    name: str = "the model",
    fix: str = "take a smaller model.width or model.depth",
) -> None:
    """Weights, gradients and what the optimiser keeps, in float32; what a step computes comes on top."""
    needed = 4 * parameters * (2 + _MOMENTS[spec.optimizer])
    there = memory_of(device)
    if there is not None and needed > there:
        raise UserError(
            f"{name} has {parameters:,} parameters: to train them takes {needed / _GIB:,.0f} GiB, and there are "
            f"{there / _GIB:,.0f} on {device.type}",
            fix=fix,
        )


def memory_of(device: torch.device) -> int | None:
    """All of it, in bytes; None where nobody says."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    found = []
    with suppress(AttributeError, ValueError, OSError):  # not on every system
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(ValueError, OSError):  # "max": no limit
        found.append(int(_LIMIT.read_text()))
    return min(found, default=None)

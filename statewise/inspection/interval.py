"""How sure a mean is: half the width of its 95 % interval by Student's t."""

import math
from collections.abc import Sequence
from statistics import stdev

import torch

from statewise.kernels import student_t


def half_width(values: Sequence[float]) -> float | None:
    """None where one value says nothing of its own spread."""
    if len(values) < 2:
        return None
    freedom = torch.tensor(float(len(values) - 1), dtype=torch.float64)
    factor = float(student_t.quantile(torch.tensor(0.975, dtype=torch.float64), freedom))
    return factor * stdev(values) / math.sqrt(len(values))

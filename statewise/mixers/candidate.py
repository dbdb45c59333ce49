"""What a minimal recurrent unit writes, as a function of `W x`: it may not look at the state."""

from typing import Literal, assert_never

import torch
from torch import Tensor

Candidate = Literal["linear", "positive", "tanh"]


def bend(a: Tensor, kind: Candidate) -> Tensor:
    """`linear`: as it is. `positive`: `a + 1/2` above 0, σ(a) below, Feng et al.'s choice for logarithms. `tanh`."""
    match kind:
        case "linear":
            return a
        case "positive":
            return torch.where(a >= 0, a + 0.5, torch.sigmoid(a))
        case "tanh":
            return torch.tanh(a)
        case _:
            assert_never(kind)

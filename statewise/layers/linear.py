"""A linear map from a generator of one's own."""

import torch
from torch import nn


def make_linear(
    input_width: int, width: int, *, bias: bool = True, generator: torch.Generator | None = None
) -> nn.Linear:
    """`W x + b`, W by Glorot and b at 0. Made empty first: nn.Linear would draw from the global generator."""
    linear = nn.Linear(input_width, width, bias=bias, device="meta").to_empty(device=torch.get_default_device())
    nn.init.xavier_uniform_(linear.weight, generator=generator)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear

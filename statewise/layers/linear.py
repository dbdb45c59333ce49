"""A linear map from a generator of one's own."""

import torch
from torch import nn

from statewise.layers.initialise import are_read_later


def unfilled_linear(input_width: int, width: int, *, bias: bool = True) -> nn.Linear:
    """An nn.Linear whose numbers are still to be filled in.

    Its own constructor would draw from the global generator; on the meta device, where nothing is drawn, it would load
    PyTorch's compiler.
    """
    made = nn.Linear.__new__(nn.Linear)
    nn.Module.__init__(made)
    made.in_features, made.out_features = input_width, width
    made.weight = nn.Parameter(torch.empty(width, input_width))
    made.register_parameter("bias", nn.Parameter(torch.empty(width)) if bias else None)
    return made


def make_linear(
    input_width: int, width: int, *, bias: bool = True, generator: torch.Generator | None = None
) -> nn.Linear:
    """`W x + b`, W by Glorot and b at 0."""
    linear = unfilled_linear(input_width, width, bias=bias)
    if not are_read_later():
        nn.init.xavier_uniform_(linear.weight, generator=generator)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear

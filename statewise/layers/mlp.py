"""The sublayer without time: widen, bend, narrow."""

from typing import Literal, assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.layers.packed import linear


class MLP(nn.Module):
    """`relu`, `gelu` (GPT-2's tanh form), or the gated `swiglu` (Shazeer 2020): `W2 (silu(W1 x) * W3 x)`."""

    def __init__(
        self,
        width: int,
        *,
        hidden: int,
        kind: Literal["relu", "gelu", "swiglu"] = "gelu",
        bias: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.kind: Literal["relu", "gelu", "swiglu"] = kind
        # Made empty: filled by its own constructor, it would draw from the global generator.
        here = torch.get_default_device()
        up = 2 * hidden if kind == "swiglu" else hidden
        self.up = nn.Linear(width, up, bias=bias, device="meta").to_empty(device=here)
        self.down = nn.Linear(hidden, width, bias=bias, device="meta").to_empty(device=here)
        for layer in (self.up, self.down):
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            if bias:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        a = linear(x, self.up.weight, self.up.bias)
        match self.kind:
            case "relu":
                a = F.relu(a)
            case "gelu":
                a = F.gelu(a, approximate="tanh")
            case "swiglu":
                gate, value = a.chunk(2, dim=-1)
                a = F.silu(gate) * value
            case _:
                assert_never(self.kind)
        return linear(a, self.down.weight, self.down.bias)

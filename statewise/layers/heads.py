"""The maps around attention: from vectors to queries, keys and values by heads, and back.

B batch, T time, I input width, D width, H heads of queries, G heads of keys and values, K width of a
head, P = (H + 2G) K rows of the stacked maps, in the order q, k, v.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Described, Stacked
from statewise.kernels.few_rows import linear
from statewise.layers.initialise import Scheme
from statewise.specs import UserError


def check_heads(heads: int, *, width: int, called: str = "width") -> None:
    """All heads are of one size."""
    if width % heads:
        divisors = ", ".join(str(n) for n in range(1, width + 1) if width % n == 0)
        raise UserError(f"{called} {width} is not a multiple of heads {heads}", fix=f"heads that fit: {divisors}")


class Heads(Described, Stacked):
    """`q = W_q x`, `k = W_k x`, `v = W_v x`, each cut into heads; `join` is `W_o [y_1, …, y_H]`.

    Fewer heads of keys and values than of queries is grouped-query attention (Ainslie et al. 2023).
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        kv_heads: int | None = None,
        input_width: int | None = None,
        bias: bool = True,
        init: Scheme = "orthogonal",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        kv_heads = kv_heads or heads
        check_heads(heads, width=width)
        if heads % kv_heads:
            raise UserError(f"heads {heads} is not a multiple of kv_heads {kv_heads}")
        self.num_heads, self.num_kv_heads, self.head_width = heads, kv_heads, width // heads
        self.input_width = input_width or width
        self.sizes = [width, kv_heads * self.head_width, kv_heads * self.head_width]
        self.w_PI = nn.Parameter(torch.empty(sum(self.sizes), self.input_width))
        self.b_P = nn.Parameter(torch.zeros(sum(self.sizes))) if bias else None
        self.o_DD = nn.Parameter(torch.empty(width, width))
        self.b_D = nn.Parameter(torch.zeros(width)) if bias else None
        for weight in (*torch.split(self.w_PI, self.sizes), self.o_DD):
            match init:
                case "orthogonal":
                    nn.init.xavier_uniform_(weight, generator=generator)
                case "torch":
                    bound = 1 / math.sqrt(weight.shape[1])
                    nn.init.uniform_(weight, -bound, bound, generator=generator)
                case "published":  # GPT-2
                    nn.init.normal_(weight, std=0.02, generator=generator)

    def stacked(self) -> dict[str, list[int]]:
        return {"w_PI": self.sizes}

    def project(self, x_BTI: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[B, T, H, K]`, keys and values `[B, T, G, K]` of one input, or of a moment: a single product."""
        q, k, v = linear(x_BTI, self.w_PI, self.b_P).split_with_sizes(self.sizes, dim=-1)
        return self._cut(q), self._cut(k), self._cut(v)

    def queries(self, x_BTI: Tensor) -> Tensor:
        size = self.sizes[0]
        return self._cut(F.linear(x_BTI, self.w_PI[:size], None if self.b_P is None else self.b_P[:size]))

    def keys_values(self, memory_BSI: Tensor) -> tuple[Tensor, Tensor]:
        size = self.sizes[0]
        both = F.linear(memory_BSI, self.w_PI[size:], None if self.b_P is None else self.b_P[size:])
        k, v = both.chunk(2, dim=-1)
        return self._cut(k), self._cut(v)

    def join(self, y_BTHK: Tensor) -> Tensor:
        return linear(y_BTHK.flatten(-2), self.o_DD, self.b_D)

    def _cut(self, a: Tensor) -> Tensor:
        return a.view(*a.shape[:-1], a.shape[-1] // self.head_width, self.head_width)

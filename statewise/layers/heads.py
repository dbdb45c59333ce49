"""Around attention: the maps from vectors to queries, keys and values by heads and back, and what all kinds share.

B batch, T time, I input width, D width, H heads of queries, G heads of keys and values, K width of a
head, P = (H + 2G) K rows of the stacked maps, in the order q, k, v.
"""

import inspect
import math
from typing import Any, ClassVar, Literal, Required, TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Described, Stacked, full_signature
from statewise.kernels import Wish
from statewise.kernels.attention import Mask, attention
from statewise.kernels.few_rows import linear
from statewise.kernels.rotary import Scaling, rotate
from statewise.layers.initialise import Scheme
from statewise.specs import UserError


def sinusoid(at: Tensor, width: int, *, like: Tensor) -> Tensor:
    """Vaswani et al. 2017: `p[2i] = sin(at / 10000^(2i/D))`, `p[2i + 1] = cos` of the same; `[..., D]`."""
    even = torch.arange(0, width, 2, dtype=torch.float64, device=at.device)
    angle = at[..., None] * 10_000.0 ** (-even / (width + width % 2))  # in float64, as rotary angles are
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :width].to(like.dtype)


def alibi_slopes(heads: int, *, like: Tensor) -> Tensor:
    """Press et al. 2022: `2^(-8/n), 2^(-16/n), …` for n heads, a power of two.

    For other counts: those of the next lower power, then every second one of the next higher power.
    """
    lower = 2 ** (heads.bit_length() - 1)
    wide = torch.promote_types(like.dtype, torch.float32)
    each = torch.arange(1, lower + 1, dtype=wide, device=like.device)
    return torch.exp2(torch.cat([-8 * each / lower, -8 * (2 * each - 1) / (2 * lower)])[:heads])


def check_heads(heads: int, *, width: int, called: str = "width") -> None:
    """All heads are of one size."""
    if width % heads:
        divisors = ", ".join(str(n) for n in range(1, width + 1) if width % n == 0)
        raise UserError(f"{called} {width} is not a multiple of heads {heads}", fix=f"heads that fit: {divisors}")


class HeadsOptions(TypedDict, total=False):
    """The options of `Heads`, which says what they mean."""

    heads: Required[int]
    kv_heads: int | None
    head_width: int | None
    query_key_norm: float | None
    input_width: int | None
    bias: bool
    init: Scheme
    generator: torch.Generator | None


class Heads(Described, Stacked):
    """`q = W_q x`, `k = W_k x`, `v = W_v x`, each cut into heads; `join` is `W_o [y_1, …, y_H]`.

    Fewer heads of keys and values than of queries is grouped-query attention (Ainslie et al. 2023). `query_key_norm` is
    the epsilon of an RMS norm of each query and key in `project`.
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        kv_heads: int | None = None,
        head_width: int | None = None,
        query_key_norm: float | None = None,
        input_width: int | None = None,
        bias: bool = True,
        init: Scheme = "orthogonal",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        kv_heads = kv_heads or heads
        if head_width is None:
            check_heads(heads, width=width)
            head_width = width // heads
        if heads % kv_heads:
            raise UserError(f"heads {heads} is not a multiple of kv_heads {kv_heads}")
        self.num_heads, self.num_kv_heads, self.head_width = heads, kv_heads, head_width
        self.input_width = input_width or width
        self.sizes = [heads * head_width, kv_heads * head_width, kv_heads * head_width]
        self.w_PI = nn.Parameter(torch.empty(sum(self.sizes), self.input_width))
        self.b_P = nn.Parameter(torch.zeros(sum(self.sizes))) if bias else None
        self.o_DD = nn.Parameter(torch.empty(width, heads * head_width))
        self.b_D = nn.Parameter(torch.zeros(width)) if bias else None
        self.norm_epsilon = query_key_norm
        self.query_gain_K = nn.Parameter(torch.ones(head_width)) if query_key_norm else None
        self.key_gain_K = nn.Parameter(torch.ones(head_width)) if query_key_norm else None
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
        """Queries `[B, T, H, K]`, keys and values `[B, T, G, K]` of a sequence or a time step: one product."""
        q, k, v = linear(x_BTI, self.w_PI, self.b_P).split_with_sizes(self.sizes, dim=-1)
        return self._normed(self._cut(q), self.query_gain_K), self._normed(self._cut(k), self.key_gain_K), self._cut(v)

    def queries(self, x_BTI: Tensor) -> Tensor:
        size = self.sizes[0]
        return self._cut(F.linear(x_BTI, self.w_PI[:size], None if self.b_P is None else self.b_P[:size]))

    def keys_values(self, memory_BSI: Tensor) -> tuple[Tensor, Tensor]:
        size = self.sizes[0]
        both = F.linear(memory_BSI, self.w_PI[size:], None if self.b_P is None else self.b_P[size:])
        k, v = both.chunk(2, dim=-1)
        return self._cut(k), self._cut(v)

    def _normed(self, a: Tensor, gain_K: Tensor | None) -> Tensor:
        return a if gain_K is None else F.rms_norm(a, gain_K.shape, gain_K, eps=self.norm_epsilon).to(a.dtype)

    def join(self, y_BTHK: Tensor) -> Tensor:
        return linear(y_BTHK.flatten(-2), self.o_DD, self.b_D)

    def _cut(self, a: Tensor) -> Tensor:
        return a.view(*a.shape[:-1], a.shape[-1] // self.head_width, self.head_width)


class AttentionOptions(HeadsOptions, total=False):
    """The options of `MultiHead`."""

    position: Literal["none", "rotary", "alibi"]
    rotary_base: float
    rotary_scaling: Scaling | None
    scale: float | None
    dropout: float
    kernel: Wish


class MultiHead(nn.Module):
    """What every multi-head attention has: its heads, the positions they know of, and the options of its kernel.

    `mixers.Attention` says what they mean.
    """

    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.__signature__ = full_signature(cls.__init__, MultiHead.__init__, Heads.__init__)

    def __init__(
        self,
        width: int,
        *,
        position: Literal["none", "rotary", "alibi"] = "none",
        rotary_base: float = 10_000.0,
        rotary_scaling: Scaling | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
        kernel: Wish = "auto",
        **options: Unpack[HeadsOptions],
    ) -> None:
        super().__init__()
        self.heads = Heads(width, **options)
        self.input_width = self.heads.input_width
        self.output_width = width
        self.position: Literal["none", "rotary", "alibi"] = position
        self.rotary_base, self.rotary_scaling = rotary_base, rotary_scaling
        self.scale = scale or 1 / math.sqrt(self.heads.head_width)
        if position == "rotary" and rotary_scaling is not None:
            self.scale *= rotary_scaling.temperature()
        self.dropout = dropout
        self.kernel: Wish = kernel

    def project(self, x_BTI: Tensor, at_BT: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of an input at these positions."""
        q_BTHK, k_BTGK, v_BTGK = self.heads.project(x_BTI)
        return self.turned(q_BTHK, at_BT), self.turned(k_BTGK, at_BT), v_BTGK

    def turned(self, x_BTHK: Tensor, at_BT: Tensor) -> Tensor:
        """By rotary positions, where it has them."""
        if self.position != "rotary":
            return x_BTHK
        return rotate(x_BTHK, at_BT, base=self.rotary_base, scaling=self.rotary_scaling)

    def attend(self, q_BTHK: Tensor, k_BSGK: Tensor, v_BSGK: Tensor, mask: Mask) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        return attention(q_BTHK, k_BSGK, v_BSGK, mask, scale=self.scale, dropout=dropout, wish=self.kernel)

    def slopes(self, like: Tensor) -> Tensor | None:
        """ALiBi's, one per head; None without them."""
        return alibi_slopes(self.heads.num_heads, like=like) if self.position == "alibi" else None

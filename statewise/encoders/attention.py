"""Attention that sees a whole input, itself or another: for encoders, and from a decoder to what it reads.

B batch, T time, S length of the memory, I input width, D width, H heads, K width of a head.
"""

from typing import final

import torch
from torch import Tensor

from statewise.core import Encoder, check_input, past_end
from statewise.kernels import Wish
from statewise.kernels.attention import Mask, attention
from statewise.layers import MultiHead


def basic_attention(x_BTD: Tensor, lengths_B: Tensor | None = None, *, wish: Wish = "auto") -> Tensor:
    """`y_i = Σ_j softmax_j(x_i · x_j) x_j` over all j: a function of a set. Permute it, and the outputs follow."""
    check_input(x_BTD, lengths_B, width=x_BTD.shape[-1])
    x_BTD, mask = look_around(x_BTD, lengths_B)
    one_head = x_BTD[:, :, None]
    y_BTD = attention(one_head, one_head, one_head, mask, scale=1.0, wish=wish)[:, :, 0]
    return past_end(y_BTD, lengths_B)


@final
class MultiHeadAttention(MultiHead, Encoder):
    """`W_o softmax(q kᵀ · scale) v`, head by head, without an order of time (Vaswani et al. 2017).

    `forward` is self-attention in both directions; `cross` takes keys and values from a memory.
    """

    def forward(self, x_BTI: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        check_input(x_BTI, lengths_B, width=self.input_width)
        x_BTI, mask = look_around(x_BTI, lengths_B)
        q_BTHK, k_BTGK, v_BTGK = self.project(x_BTI, mask.query_at_BT)
        mask = mask._replace(slopes_H=self.slopes(q_BTHK))
        y_BTD = self.heads.join(self.attend(q_BTHK, k_BTGK, v_BTGK, mask))
        return past_end(y_BTD, lengths_B)

    def cross(self, x_BTI: Tensor, memory_BSI: Tensor, memory_lengths_B: Tensor | None = None) -> Tensor:
        """Queries from `x`, keys and values from `memory`. Positions of two texts do not compare: none are used."""
        check_input(memory_BSI, memory_lengths_B, width=self.input_width)
        memory_BSI = past_end(memory_BSI, memory_lengths_B)
        return self.look(x_BTI, *self.heads.keys_values(memory_BSI), memory_lengths_B)

    def look(self, x_BTI: Tensor, keys_BSGK: Tensor, values_BSGK: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """`cross` into a memory whose keys and values were made before: a decoder makes them once."""
        check_input(x_BTI, None, width=self.input_width)
        at_BT = torch.arange(x_BTI.shape[1], device=x_BTI.device).expand(x_BTI.shape[0], -1)
        slots_BS = torch.arange(keys_BSGK.shape[1], device=x_BTI.device).expand(x_BTI.shape[0], -1)
        if lengths_B is not None:
            slots_BS = slots_BS.masked_fill(slots_BS >= lengths_B[:, None], -1)
        mask = Mask(at_BT, slots_BS, causal=False, whole=lengths_B is None)
        return self.heads.join(self.attend(self.heads.queries(x_BTI), keys_BSGK, values_BSGK, mask))


def look_around(x_BTD: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, Mask]:
    """The input with its padding set to 0, and the mask of queries that see all of their row and no padding."""
    at_BT = torch.arange(x_BTD.shape[1], device=x_BTD.device).expand(x_BTD.shape[0], -1)
    if lengths_B is None:
        return x_BTD, Mask(at_BT, at_BT, causal=False, whole=True)
    return past_end(x_BTD, lengths_B), Mask(at_BT, past_end(at_BT, lengths_B, -1), causal=False)

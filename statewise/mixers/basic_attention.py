"""Self-attention without a single parameter: each output is a mean of the inputs, weighed by likeness.

B batch, T time, S slots of the list, D width.
"""

from typing import NamedTuple, final

import torch
from torch import Tensor

from statewise.core import state_type
from statewise.kernels import Wish
from statewise.kernels.attention import Mask, append, attend_, attention, up_to, with_room
from statewise.mixers.attention import ListMixer
from statewise.mixers.recurrent import KernelMixer


@state_type
class BasicAttentionState(NamedTuple):
    """Everything read so far. Row b uses its first `length_B[b]` slots; the rest means nothing."""

    list_BSD: Tensor
    length_B: Tensor


@final
class BasicAttention(ListMixer[BasicAttentionState], KernelMixer[BasicAttentionState]):
    """`y_i = Σ_{j <= i} softmax_j(x_i · x_j) x_j`: query, key and value are the input itself."""

    def __init__(self, width: int, *, kernel: Wish = "auto") -> None:
        self.prepare(width, kernel=kernel)

    def init_state(self, batch: int) -> BasicAttentionState:
        length_B = torch.zeros(batch, dtype=torch.int64, device=self.like.device)
        return BasicAttentionState(self.like.new_zeros(batch, 0, self.input_width), length_B)

    def _read(
        self, x_BTD: Tensor, state: BasicAttentionState, lengths_B: Tensor | None
    ) -> tuple[Tensor, BasicAttentionState]:
        at_BT = state.length_B[:, None] + torch.arange(x_BTD.shape[1], device=x_BTD.device)
        list_BSD = append(state.list_BSD, x_BTD, at_BT)
        slots_BS = torch.arange(list_BSD.shape[1], device=x_BTD.device).expand(x_BTD.shape[0], -1)
        mask = Mask(at_BT, slots_BS, whole=state.list_BSD.shape[1] == 0)
        one_head = list_BSD[:, :, None]
        y_BTD = attention(x_BTD[:, :, None], one_head, one_head, mask, scale=1.0, wish=self.kernel)[:, :, 0]
        if lengths_B is None:
            return y_BTD, BasicAttentionState(list_BSD, state.length_B + x_BTD.shape[1])
        length_B = state.length_B + lengths_B
        return y_BTD, BasicAttentionState(up_to(list_BSD, length_B), length_B)

    @torch.no_grad()
    def reserve(self, state: BasicAttentionState, tokens: int) -> tuple[BasicAttentionState, int]:
        """A copy of the state with so many slots more; how many are in use, a device would have to be asked."""
        slots = state.list_BSD.shape[1] + tokens
        return BasicAttentionState(with_room(state.list_BSD, slots), state.length_B), tokens

    @torch.no_grad()
    def step_(self, x_BD: Tensor, state: BasicAttentionState) -> tuple[Tensor, BasicAttentionState]:
        """`step`, written into a free slot: nothing is copied. Make room first with `reserve`."""
        one_head, x_B1D = state.list_BSD[:, :, None], x_BD[:, None]
        y_B1D, length_B = attend_(
            x_B1D, x_B1D, x_B1D, one_head, one_head, state.length_B, slopes_H=None, scale=1.0, wish=self.kernel
        )
        return y_B1D[:, 0], BasicAttentionState(state.list_BSD, length_B)

"""Attention to the newest entries only (Beltagy et al. 2020; Child et al. 2019): a list of bounded size.

B batch, T time, S slots, I input width, D width, H heads, G heads of keys and values, K width of a head.
"""

from typing import NamedTuple, Unpack, final

import torch
from torch import Tensor

from statewise.core import is_observed, is_symbolic, state_type
from statewise.kernels.attention import Mask
from statewise.layers import AttentionOptions, MultiHead
from statewise.mixers.attention import ListMixer

_BLOCK = 128  # queries that are compared with their slots at once, at least


@state_type
class SlidingAttentionState(NamedTuple):
    """The newest entries, the newest last; before a row has read so many, its first slots mean nothing."""

    keys_BSGK: Tensor
    values_BSGK: Tensor
    position_B: Tensor  # entries read so far, the forgotten ones too


@final
class SlidingAttention(MultiHead, ListMixer[SlidingAttentionState]):
    """`y_t = W_o Σ_j softmax_j(q_t · k_j · scale) v_j` over t - window < j <= t, head by head.

    A query sees `window` entries, itself among them, so the state holds `window - 1`: its size is
    fixed. Other options as in `Attention`.
    """

    def __init__(self, width: int, *, window: int, **options: Unpack[AttentionOptions]) -> None:
        super().__init__(width, **options)
        self.window = window

    def init_state(self, batch: int) -> SlidingAttentionState:
        shape = (batch, self.window - 1, self.heads.num_kv_heads, self.heads.head_width)
        position_B = torch.zeros(batch, dtype=torch.int64, device=self.like.device)
        return SlidingAttentionState(self.like.new_zeros(shape), self.like.new_zeros(shape), position_B)

    def _read(
        self, x_BTI: Tensor, state: SlidingAttentionState, lengths_B: Tensor | None
    ) -> tuple[Tensor, SlidingAttentionState]:
        time, kept = x_BTI.shape[1], self.window - 1
        at_BT = state.position_B[:, None] + torch.arange(time, device=x_BTI.device)
        q_BTHK, k_BTGK, v_BTGK = self.project(x_BTI, at_BT)
        keys_BSGK = torch.cat([state.keys_BSGK, k_BTGK.to(state.keys_BSGK.dtype)], dim=1)
        values_BSGK = torch.cat([state.values_BSGK, v_BTGK.to(state.values_BSGK.dtype)], dim=1)
        # Slots from before a row began have a negative position, which says that they are empty.
        slots_BS = state.position_B[:, None] + torch.arange(-kept, time, device=x_BTI.device)
        y_BTHK = self._attend(q_BTHK, keys_BSGK, values_BSGK, at_BT, slots_BS)
        y_BTD = self.heads.join(y_BTHK)
        if lengths_B is None:
            after = SlidingAttentionState(keys_BSGK[:, time:], values_BSGK[:, time:], state.position_B + time)
            return y_BTD, after
        row_B1 = torch.arange(x_BTI.shape[0], device=x_BTI.device)[:, None]
        newest_BS = lengths_B[:, None] + torch.arange(kept, device=x_BTI.device)
        after = SlidingAttentionState(
            keys_BSGK[row_B1, newest_BS], values_BSGK[row_B1, newest_BS], state.position_B + lengths_B
        )
        return y_BTD, after

    def _attend(
        self, q_BTHK: Tensor, keys_BSGK: Tensor, values_BSGK: Tensor, at_BT: Tensor, slots_BS: Tensor
    ) -> Tensor:
        """Block by block, each against the slots it can reach, so that the cost is linear in T."""
        time, kept = q_BTHK.shape[1], self.window - 1
        # A lens wants distributions of one size, and a graph for any length has no number of blocks.
        block = time if is_observed() or is_symbolic(time) else max(self.window, _BLOCK)
        slopes_H = self.slopes(q_BTHK)
        blocks = []
        for begin in [0] if is_symbolic(time) else range(0, time, block):
            queries, slots = slice(begin, begin + block), slice(begin, begin + block + kept)
            mask = Mask(at_BT[:, queries], slots_BS[:, slots], window=self.window, slopes_H=slopes_H)
            blocks.append(self.attend(q_BTHK[:, queries], keys_BSGK[:, slots], values_BSGK[:, slots], mask))
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)

"""Causal multi-head self-attention (Vaswani et al. 2017) as a machine: its state is a list that grows.

B batch, T time, S slots of the list, I input width, D width, H heads, G heads of keys and values,
K width of a head.
"""

from abc import abstractmethod
from typing import NamedTuple, TypeVar, final

import torch
from torch import Tensor

from statewise.core import Mixer, State, check_input, one_step, past_end, state_type
from statewise.kernels import Choice, Wish
from statewise.kernels.attention import Mask, append, attend_, choice, up_to, with_room
from statewise.layers import MultiHead

S = TypeVar("S", bound=State)


class ListMixer(Mixer[S]):
    """A mixer that attends to a list of what it has read: `forward` is `_read`, a step is a sequence of one."""

    kernel: Wish

    def choice(self) -> Choice:
        """Which implementation `forward` will run, and why."""
        return choice(wish=self.kernel)

    @abstractmethod
    def _read(self, x_BTI: Tensor, state: S, lengths_B: Tensor | None) -> tuple[Tensor, S]: ...

    def forward(self, x: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        check_input(x, lengths_B, width=self.input_width)
        state = self.init_state(x.shape[0]) if state is None else state
        # Whatever padding holds, NaN too, must not meet a weight of 0.
        y, after = self._read(past_end(x, lengths_B), state, lengths_B)
        return past_end(y, lengths_B), after

    def step(self, x: Tensor, state: S) -> tuple[Tensor, S]:
        return one_step(self.forward, x, state)


@state_type
class AttentionState(NamedTuple):
    """The key/value cache. Row b uses its first `length_B[b]` slots; slot i is position i. The rest means nothing."""

    keys_BSGK: Tensor
    values_BSGK: Tensor
    length_B: Tensor


@final
class Attention(MultiHead, ListMixer[AttentionState]):
    """`y_t = W_o Σ_j softmax_j(q_t · k_j · scale) v_j` over all j <= t, head by head.

    `kv_heads`: fewer heads of keys and values, a smaller cache. `position`: none, `rotary` (queries and keys are turned
    by their positions), `alibi` (scores fall with distance). `scale`: 1/√K by default. `dropout`: of the weights, while
    training.
    """

    def init_state(self, batch: int) -> AttentionState:
        empty_BSGK = self.like.new_zeros(batch, 0, self.heads.num_kv_heads, self.heads.head_width)
        return AttentionState(empty_BSGK, empty_BSGK, torch.zeros(batch, dtype=torch.int64, device=self.like.device))

    def _read(self, x_BTI: Tensor, state: AttentionState, lengths_B: Tensor | None) -> tuple[Tensor, AttentionState]:
        before, time = state.keys_BSGK.shape[1], x_BTI.shape[1]
        at_BT = state.length_B[:, None] + torch.arange(time, device=x_BTI.device)
        q_BTHK, k_BTGK, v_BTGK = self.project(x_BTI, at_BT)
        keys_BSGK, values_BSGK = append(state.keys_BSGK, k_BTGK, at_BT), append(state.values_BSGK, v_BTGK, at_BT)
        if before == 0:  # a cache may be kept in another precision: not there and back
            y_BTHK = self._attend(q_BTHK, k_BTGK, v_BTGK, at_BT, whole=True)
        else:
            y_BTHK = self._attend(q_BTHK, keys_BSGK, values_BSGK, at_BT, whole=False)
        y_BTD = self.heads.join(y_BTHK)
        if lengths_B is None:
            return y_BTD, AttentionState(keys_BSGK, values_BSGK, state.length_B + time)
        length_B = state.length_B + lengths_B
        return y_BTD, AttentionState(up_to(keys_BSGK, length_B), up_to(values_BSGK, length_B), length_B)

    @torch.no_grad()
    def reserve(self, state: AttentionState, tokens: int) -> tuple[AttentionState, int]:
        """A copy of the state with so many slots more; how many are in use, a device would have to be asked."""
        slots = state.keys_BSGK.shape[1] + tokens
        keys_BSGK, values_BSGK = with_room(state.keys_BSGK, slots), with_room(state.values_BSGK, slots)
        return AttentionState(keys_BSGK, values_BSGK, state.length_B), tokens

    @torch.no_grad()
    def step_(self, x_BI: Tensor, state: AttentionState) -> tuple[Tensor, AttentionState]:
        """`step`, written into free slots: nothing is copied. Make room first with `reserve`."""
        q_BHK, k_BGK, v_BGK = self.heads.project(x_BI)
        q_BHK, k_BGK = (self.turned(part[:, None], state.length_B[:, None])[:, 0] for part in (q_BHK, k_BGK))
        y_BHK, length_B = attend_(
            q_BHK, k_BGK, v_BGK, *state, slopes_H=self.slopes(q_BHK), scale=self.scale, wish=self.kernel
        )
        return self.heads.join(y_BHK), AttentionState(state.keys_BSGK, state.values_BSGK, length_B)

    def _attend(self, q_BTHK: Tensor, keys_BSGK: Tensor, values_BSGK: Tensor, at_BT: Tensor, *, whole: bool) -> Tensor:
        """Slot i is position i."""
        slots_BS = torch.arange(keys_BSGK.shape[1], device=at_BT.device).expand(at_BT.shape[0], -1)
        return self.attend(
            q_BTHK, keys_BSGK, values_BSGK, Mask(at_BT, slots_BS, slopes_H=self.slopes(q_BTHK), whole=whole)
        )

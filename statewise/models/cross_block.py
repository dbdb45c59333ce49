"""A layer of a Transformer decoder: self-attention, cross-attention to the source, then an MLP.

B batch, T time, S source positions, D width, G heads of keys and values, K width of a head.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from statewise.core import Machine, Mixer, State, one_step, scope, state_type
from statewise.encoders import MultiHeadAttention
from statewise.layers import Around, Norm
from statewise.models.stack import shown


@state_type
class CrossState(NamedTuple):
    """The state of self-attention, and the source's keys and values, computed once."""

    own: State
    keys_BSGK: Tensor
    values_BSGK: Tensor
    source_length_B: Tensor


@final
class CrossBlock(Machine[CrossState]):
    """A layer of three sublayers, each with a residual: `residual` of what stands around them is not asked.

    The source never changes, so it is part of the state, and beams reorder it with everything else.
    """

    def __init__(
        self,
        mixer: Mixer[Any],
        cross: MultiHeadAttention,
        cross_norm: Norm,
        around: Around,
    ) -> None:
        super().__init__()
        self.mixer = mixer
        self.cross = cross
        self.norm = around.norm
        self.cross_norm = cross_norm
        _, self.dropout, _, self.norm_place, self.mlp, self.mlp_norm = around

    def extra_repr(self) -> str:
        return f"norm_place={self.norm_place!r}"

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        return self.mixer.sample_input(batch, time, generator=generator)

    def init_state(self, batch: int) -> CrossState:
        """With an empty source: attention to it gives 0."""
        heads = self.cross.heads
        nothing = self.like.new_zeros(batch, 0, heads.num_kv_heads, heads.head_width)
        empty_B = torch.zeros(batch, dtype=torch.int64, device=self.like.device)
        return CrossState(self.mixer.init_state(batch), nothing, nothing, empty_B)

    def condition(self, memory_BSD: Tensor, lengths_B: Tensor) -> CrossState:
        keys_BSGK, values_BSGK = self.cross.heads.keys_values(memory_BSD)
        return CrossState(self.mixer.init_state(memory_BSD.shape[0]), keys_BSGK, values_BSGK, lengths_B)

    def forward(
        self, x_BTD: Tensor, state: CrossState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, CrossState]:
        state = state or self.init_state(x_BTD.shape[0])
        after = []

        def read(x_BTD: Tensor) -> Tensor:
            y_BTD, own = self.mixer(x_BTD, state.own, lengths_B)
            after.append(own)
            return y_BTD

        x_BTD = self._around(read, self.norm, x_BTD)
        with scope("source"):
            x_BTD = self._around(lambda x: self.cross.look(x, *state[1:]), self.cross_norm, x_BTD)
        if self.mlp is not None and self.mlp_norm is not None:
            x_BTD = self._around(self.mlp, self.mlp_norm, x_BTD)
        return shown(x_BTD), state._replace(own=after[0])

    def step(self, x_BD: Tensor, state: CrossState) -> tuple[Tensor, CrossState]:
        return one_step(self.forward, x_BD, state)

    def _around(self, sublayer: Callable[[Tensor], Tensor], norm: nn.Module, x_BTD: Tensor) -> Tensor:
        if self.norm_place == "pre":
            y_BTD: Tensor = x_BTD + self.dropout(sublayer(norm(x_BTD)))
        else:
            y_BTD = norm(x_BTD + self.dropout(sublayer(x_BTD)))
        return y_BTD

"""The Transformer as a decoder (Vaswani et al. 2017): every layer attends to the source with its own heads.

B batch, S source time, T target time, D width (E as it enters), C width of what the reader gives, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast, final

import torch
from torch import Tensor, nn

from statewise.core import State, one_step, past_end, scope, state_type
from statewise.layers import Dropout, Embedding
from statewise.models.add_position import AddPosition
from statewise.models.cross_block import CrossBlock, CrossState
from statewise.models.head import CategoricalHead
from statewise.models.reader import Encoded, Reader
from statewise.models.token_machine import ConditionalMachine


@state_type
class TransformerState(NamedTuple):
    layers: tuple[CrossState, ...]
    position: State = ()  # how many tokens each row has decoded, where positions are added


@final
class Transformer(ConditionalMachine[TransformerState]):
    """Target tokens in, logits of the next target token out, given a source that any reader has read."""

    def __init__(
        self,
        *,
        reader: Reader,
        embedding: Embedding,
        input_dropout: Dropout,
        blocks: Sequence[CrossBlock],
        final_norm: nn.Module,
        head: CategoricalHead,
        position: AddPosition | None = None,
        bring: nn.Linear | None = None,
        output_edges: bool = True,
    ) -> None:
        super().__init__()
        self.reader = reader
        self.bring = bring  # from the reader's width to the decoder's, where they differ
        self.embedding = embedding
        self.position = position
        self.input_dropout = input_dropout
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = final_norm
        self.head = head
        self.output_edges = output_edges
        self.looks = f"layers.{len(blocks) - 1}.source.attention.weights"

    def _blocks(self) -> Sequence[CrossBlock]:
        return cast("Sequence[CrossBlock]", self.blocks)

    @property
    def vocab(self) -> int:
        return len(self.head.bias_V)

    def begin(self, encoded: Encoded) -> TransformerState:
        memory_BSD = encoded.outputs_BSC if self.bring is None else self.bring(encoded.outputs_BSC)
        position = () if self.position is None else self.position.init_state(memory_BSD.shape[0])
        layers = tuple(block.condition(memory_BSD, encoded.length_B) for block in self._blocks())
        return TransformerState(layers, position)

    def embed(self, target_BT: Tensor) -> Tensor:
        e_BTD: Tensor = self.embedding(target_BT)
        return e_BTD

    def follow(
        self, e_BTE: Tensor, state: TransformerState, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, TransformerState]:
        layers, at = state
        x_BTD = e_BTE if self.output_edges else torch.zeros_like(e_BTE)
        if self.position is not None:
            x_BTD, at = self.position(x_BTD, cast(Tensor, at), lengths_B)
        x_BTD = self.input_dropout(x_BTD)
        after = []
        for number, (block, layer) in enumerate(zip(self._blocks(), layers, strict=True)):
            with scope(f"layers.{number}"):
                x_BTD, layer = block(x_BTD, layer, lengths_B)
            after.append(layer)
        return past_end(self.head(self.final_norm(x_BTD)), lengths_B), TransformerState(tuple(after), at)

    def step(self, token_B: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        return one_step(self.forward, token_B, state)

"""Layers on top of each other; the state is the list of theirs."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn

from statewise.core import Machine, State, scope, state_type
from statewise.layers import Norm
from statewise.models.add_position import AddPosition
from statewise.models.block import Block


@state_type
class StackState(NamedTuple):
    layers: tuple[State, ...]
    position: State = ()  # how far each row has read, where positions are added below the first layer


@final
class Stack(Machine[StackState]):
    def __init__(self, blocks: Sequence[Block[Any]], *, final_norm: Norm, position: AddPosition | None = None) -> None:
        super().__init__()
        self.position = position
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = final_norm

    def _blocks(self) -> Sequence[Block[Any]]:
        return cast("Sequence[Block[Any]]", self.blocks)

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        return self._blocks()[0].sample_input(batch, time, generator=generator)

    def init_state(self, batch: int) -> StackState:
        position = () if self.position is None else self.position.init_state(batch)
        return StackState(tuple(block.init_state(batch) for block in self._blocks()), position)

    def forward(
        self, x_BTD: Tensor, state: StackState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, StackState]:
        layers, at = state or self.init_state(x_BTD.shape[0])
        if self.position is not None:
            x_BTD, at = self.position(x_BTD, None if state is None else cast(Tensor, at), lengths_B)
        after = []
        for number, (block, layer) in enumerate(zip(self._blocks(), layers, strict=True)):
            with scope(f"layers.{number}"):
                x_BTD, layer = block(x_BTD, layer, lengths_B)
            after.append(layer)
        return self.final_norm(x_BTD), StackState(tuple(after), at)

    def absorb(self, x_BTD: Tensor, state: StackState | None = None, lengths_B: Tensor | None = None) -> StackState:
        """The last layer's outputs are nobody's input."""
        layers, at = state or self.init_state(x_BTD.shape[0])
        if self.position is not None:
            x_BTD, at = self.position(x_BTD, None if state is None else cast(Tensor, at), lengths_B)
        *lower, top = self._blocks()
        after = []
        for number, (block, layer) in enumerate(zip(lower, layers)):
            with scope(f"layers.{number}"):
                x_BTD, layer = block(x_BTD, layer, lengths_B)
            after.append(layer)
        with scope(f"layers.{len(lower)}"):
            after.append(top.absorb(x_BTD, layers[-1], lengths_B))
        return StackState(tuple(after), at)

    def step(self, x_BD: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        return self._step(x_BD, state, in_place=False)

    def reserve(self, state: StackState, tokens: int) -> tuple[StackState, int]:
        at = state.position
        if self.position is not None:
            at, tokens = self.position.reserve(cast(Tensor, at), tokens)
        made = [block.reserve(layer, tokens) for block, layer in zip(self._blocks(), state.layers, strict=True)]
        return StackState(tuple(layer for layer, _ in made), at), min(room for _, room in made)

    def step_(self, x_BD: Tensor, state: StackState) -> tuple[Tensor, StackState]:
        return self._step(x_BD, state, in_place=True)

    def _step(self, x_BD: Tensor, state: StackState, *, in_place: bool) -> tuple[Tensor, StackState]:
        layers, at = state
        if self.position is not None:
            step = self.position.step_ if in_place else self.position.step
            x_BD, at = step(x_BD, cast(Tensor, at))
        after = []
        for number, (block, layer) in enumerate(zip(self._blocks(), layers, strict=True)):
            with scope(f"layers.{number}"):
                x_BD, layer = block.step_(x_BD, layer) if in_place else block.step(x_BD, layer)
            after.append(layer)
        return self.final_norm(x_BD), StackState(tuple(after), at)

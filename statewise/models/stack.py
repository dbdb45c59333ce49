"""A layer (mixer and perhaps an MLP, each with norm, dropout and perhaps a residual), and a stack of layers."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast, final

import torch
from torch import Tensor, nn

from statewise.core import Machine, Mixer, State, is_observed, observe, scope, state_type
from statewise.layers import Around, Norm
from statewise.models.add_position import AddPosition

S = TypeVar("S", bound=State)


@final
class Block(Machine[S]):
    """A mixer, perhaps an MLP, and the rest of a layer. Its state is the mixer's: an MLP has no time."""

    def __init__(self, mixer: Mixer[S], around: Around) -> None:
        super().__init__()
        self.norm = around.norm
        self.mixer = mixer
        _, self.dropout, self.residual, self.norm_place, self.mlp, self.mlp_norm = around

    def extra_repr(self) -> str:
        return f"residual={self.residual}, norm_place={self.norm_place!r}"

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        return self.mixer.sample_input(batch, time, generator=generator)

    def init_state(self, batch: int) -> S:
        return self.mixer.init_state(batch)

    def forward(self, x_BTD: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        return self._around(lambda x: self.mixer(x, state, lengths_B), x_BTD, self.dropout)

    def absorb(self, x_BTD: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> S:
        x_BTD = self.norm(x_BTD, for_products=True) if self.norm_place == "pre" else x_BTD
        return self.mixer.absorb(x_BTD, state, lengths_B)

    def step(self, x_BD: Tensor, state: S) -> tuple[Tensor, S]:
        return self._around(lambda x: self.mixer.step(x, state), x_BD, self._one_dropout)

    def reserve(self, state: S, tokens: int) -> tuple[S, int]:
        return self.mixer.reserve(state, tokens)

    def step_(self, x_BD: Tensor, state: S) -> tuple[Tensor, S]:
        return self._around(lambda x: self.mixer.step_(x, state), x_BD, self._one_dropout)

    def _one_dropout(self, y_BD: Tensor) -> Tensor:
        return self.dropout(y_BD[:, None])[:, 0] if self.training else y_BD

    def _around(
        self, mix: Callable[[Tensor], tuple[Tensor, S]], x: Tensor, dropout: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, S]:
        """One definition for a sequence and for a single time step."""
        pre = self.norm_place == "pre"
        y, after = mix(self.norm(x, for_products=True) if pre else x)
        y = dropout(y)
        if self.mlp is None or self.mlp_norm is None:
            y = x + y if self.residual else y
            return shown(y if pre else self.norm(y)), after
        if pre and self.residual:
            y, read = self.mlp_norm.of_sum(x, y)
        else:
            y = x + y if self.residual else y
            y = y if pre else self.norm(y)
            read = self.mlp_norm(y, for_products=True) if pre else y
        if self.residual and not self.training:  # no dropout in between
            z = self.mlp(read, onto=y)
        else:
            z = dropout(self.mlp(read))
            z = y + z if self.residual else z
        return shown(z if pre else self.mlp_norm(z)), after


def shown(y: Tensor) -> Tensor:
    """Show a layer's output to a lens, time step by time step: units that every architecture has."""
    if not is_observed():
        return y
    if y.dim() == 2:
        return observe("block.output", y)
    return torch.stack([observe("block.output", y_BD) for y_BD in y.unbind(1)], dim=1)


@state_type
class StackState(NamedTuple):
    layers: tuple[State, ...]
    position: State = ()  # how far each row has read, where positions are added below the first layer


@final
class Stack(Machine[StackState]):
    step_axes = 2

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
        """The last layer's outputs are not needed."""
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

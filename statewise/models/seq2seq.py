"""An encoder-decoder is a decoder whose initial state holds what the encoder left.

`condition` reads a source and gives that state; from there on it is a machine like any other: it steps,
splits, forks, and beams reorder its rows.

B batch, S source time, T target time, E embedding width, D decoder width, C context width, V vocabulary.
"""

from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple, final

import torch
from torch import Tensor, nn

from statewise.core import Machine, State, leaves, map_state, unroll
from statewise.core.machine import check_input
from statewise.layers import Embedding
from statewise.layers.attend import Attend, Memory
from statewise.models.head import CategoricalHead
from statewise.models.stack import Stack, StackState
from statewise.specs import UserError


class Encoded(NamedTuple):
    """A source that was read: an output per position, and one vector for all of it."""

    outputs_BSC: Tensor
    summary_BC: Tensor
    length_B: Tensor


class Reader(nn.Module, ABC):
    """Reads a whole source. Its outputs are 0 past a row's end."""

    width: int

    @abstractmethod
    def forward(self, source_BS: Tensor, lengths_B: Tensor) -> Encoded: ...

    def __call__(self, source_BS: Tensor, lengths_B: Tensor) -> Encoded:
        encoded: Encoded = super().__call__(source_BS, lengths_B)
        return encoded


class DecoderState(NamedTuple):
    mixer: StackState
    context_BC: Tensor  # what stands for the source at every step; of width 0 where nothing does
    memory: Memory  # what can be looked back at; without positions where nothing can
    carried_BF: Tensor  # bahdanau: the last output, which asks; luong: what was found, which is fed back
    position_B: Tensor


class Bridge(nn.Module):
    """From a summary to the first state of any decoder whose state is vectors: `tanh(W c + b)` for each leaf."""

    def __init__(self, width: int, initial: State, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        shapes = [(name, leaf) for name, leaf in leaves(initial)]
        for name, leaf in shapes:
            if leaf.dim() != 2 or not leaf.is_floating_point() or leaf.shape[1] == 0:
                raise UserError(
                    f"a decoder whose state has {name} cannot begin from a summary: only vectors can",
                    fix="set context to each_step or attention, or choose a recurrent decoder",
                )
        self.maps = nn.ModuleList(nn.Linear(width, leaf.shape[1]) for _, leaf in shapes)
        for linear in self.maps:
            assert isinstance(linear, nn.Linear)
            nn.init.xavier_uniform_(linear.weight, generator=generator)
            nn.init.zeros_(linear.bias)

    def forward(self, summary_BC: Tensor, initial: Any) -> Any:
        maps = iter(self.maps)
        return map_state(lambda leaf: torch.tanh(next(maps)(summary_BC)), initial)


@final
class Seq2Seq(Machine[DecoderState]):
    """Target tokens in, logits of the next target token out, given a source that `condition` has read.

    What reaches the decoder is `bridge` (the first state), `context` (an input at every step) or `attend`
    (a look at every position; `before`: the look is part of the update, as Bahdanau's; after: Luong's).
    """

    def __init__(
        self,
        *,
        reader: Reader,
        embedding: Embedding,
        stack: Stack,
        head: CategoricalHead,
        stack_width: int,
        enter: nn.Linear | None = None,
        bridge: Bridge | None = None,
        each_step: bool = False,
        attend: Attend | None = None,
        style: Literal["bahdanau", "luong"] = "bahdanau",
        combine: nn.Linear | None = None,
        input_feeding: bool = True,
        output_edges: bool = True,
    ) -> None:
        super().__init__()
        self.reader = reader
        self.embedding = embedding
        self.stack = stack
        self.head = head
        self.stack_width = stack_width
        self.enter = enter  # where layers add to their input, all that enters is brought to their width
        self.bridge = bridge
        self.each_step = each_step
        self.attend = attend
        self.style: Literal["bahdanau", "luong"] = style
        self.combine = combine
        self.input_feeding = input_feeding
        self.output_edges = output_edges

    @property
    def vocab(self) -> int:
        return len(self.head.bias_V)

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        return torch.randint(self.vocab, (batch, time), generator=generator).to(self.like.device)

    def init_state(self, batch: int) -> DecoderState:
        """The state after a source of no length."""
        nothing = self.like.new_zeros(batch, 0, self.reader.width)
        empty_B = torch.zeros(batch, dtype=torch.int64, device=self.like.device)
        return self._begin(Encoded(nothing, self.like.new_zeros(batch, self.reader.width), empty_B))

    def condition(self, source_BS: Tensor, lengths_B: Tensor | None = None) -> DecoderState:
        """Read a source; the decoder goes on from the state this gives."""
        check_input(source_BS, lengths_B)
        if lengths_B is None:
            lengths_B = source_BS.new_full((len(source_BS),), source_BS.shape[1])
        return self._begin(self.reader(source_BS, lengths_B))

    def _begin(self, encoded: Encoded) -> DecoderState:
        batch = len(encoded.summary_BC)
        first = self.stack.init_state(batch)
        return DecoderState(
            mixer=first if self.bridge is None else self.bridge(encoded.summary_BC, first),
            context_BC=encoded.summary_BC if self.each_step else encoded.summary_BC[:, :0],
            memory=self._remember(encoded),
            carried_BF=encoded.summary_BC.new_zeros(batch, self._carried_width()),
            position_B=torch.zeros_like(encoded.length_B),
        )

    def _remember(self, encoded: Encoded) -> Memory:
        if self.attend is None:
            nothing = encoded.outputs_BSC[:, :0]
            return Memory(nothing, nothing, encoded.length_B)
        return self.attend.remember(encoded.outputs_BSC, encoded.outputs_BSC, encoded.length_B)

    def _carried_width(self) -> int:
        if self.attend is None or (self.style == "luong" and not self.input_feeding):
            return 0
        return self.stack_width

    @property
    def _parallel(self) -> bool:
        """Whether a step's input is known before the step before it is done."""
        return self._carried_width() == 0

    def forward(
        self, target_BT: Tensor, state: DecoderState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, DecoderState]:
        check_input(target_BT, lengths_B)
        state = state or self.init_state(len(target_BT))
        if not self._parallel:
            return unroll(self.step, target_BT, state, lengths_B)
        time = target_BT.shape[1]
        x_BTX = torch.cat([self._embed(target_BT), state.context_BC[:, None].expand(-1, time, -1)], dim=-1)
        y_BTD, mixer = self.stack(self._enter(x_BTX), state.mixer, lengths_B)
        position_BT = state.position_B[:, None] + torch.arange(time, device=target_BT.device)
        logits_BTV = self.head(self._look_after(y_BTD, state.memory, position_BT))
        read_B = torch.full_like(state.position_B, time)
        if lengths_B is not None:
            past_BT = torch.arange(time, device=target_BT.device) >= lengths_B[:, None]
            logits_BTV = logits_BTV.masked_fill(past_BT[:, :, None], 0.0)
            read_B = lengths_B.clamp(max=time)
        return logits_BTV, state._replace(mixer=mixer, position_B=state.position_B + read_B)

    def step(self, token_B: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        e_BE = self._embed(token_B)
        position_B1 = state.position_B[:, None]
        if self.attend is not None and self.style == "bahdanau":
            found_BC = self.attend(state.carried_BF[:, None], state.memory, position_B1)[:, 0]
            x_BX = torch.cat([e_BE, state.context_BC, found_BC], dim=-1)
            y_BD, mixer = self.stack.step(self._enter(x_BX), state.mixer)
            assert self.combine is not None
            shown_BD = torch.tanh(self.combine(torch.cat([y_BD, found_BC, e_BE], dim=-1)))
            carried_BF = y_BD
        else:
            x_BX = torch.cat([e_BE, state.context_BC, state.carried_BF], dim=-1)
            y_BD, mixer = self.stack.step(self._enter(x_BX), state.mixer)
            shown_BD = self._look_after(y_BD[:, None], state.memory, position_B1)[:, 0]
            carried_BF = shown_BD if self._carried_width() else state.carried_BF
        after = state._replace(mixer=mixer, carried_BF=carried_BF, position_B=state.position_B + 1)
        return self.head(shown_BD), after

    def _enter(self, x: Tensor) -> Tensor:
        if self.enter is None:
            return x
        entered: Tensor = self.enter(x)
        return entered

    def _embed(self, tokens: Tensor) -> Tensor:
        e: Tensor = self.embedding(tokens)
        return e if self.output_edges else torch.zeros_like(e)

    def _look_after(self, y_BTD: Tensor, memory: Memory, position_BT: Tensor) -> Tensor:
        """Luong: the new output asks, and what is found is put beside it."""
        if self.attend is None:
            return y_BTD
        assert self.combine is not None
        found_BTC = self.attend(y_BTD, memory, position_BT)
        return torch.tanh(self.combine(torch.cat([found_BTC, y_BTD], dim=-1)))

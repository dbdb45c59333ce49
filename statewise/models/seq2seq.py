"""An encoder-decoder: a decoder whose initial state holds the encoder's result.

`condition` reads a source and gives that state; from there on it is a machine like any other: it steps,
splits, forks, and beams reorder its rows.

B batch, T target time, E embedding width, D decoder width, C context width, X any width, V vocabulary.
"""

from typing import Any, Literal, NamedTuple, final

import torch
from torch import Tensor, nn

from statewise.core import State, hold, leaves, map_state, past_end, state_type
from statewise.layers import Attend, Dropout, Embedding, Looks, make_linear, one_sequence
from statewise.models.head import CategoricalHead
from statewise.models.reader import Encoded, Reader
from statewise.models.stack import Stack, StackState
from statewise.models.token_machine import ConditionalMachine
from statewise.specs import UserError


@state_type
class DecoderState(NamedTuple):
    mixer: StackState
    context_BC: Tensor  # the source's summary, for every step's input or output; of width 0 where it is not used
    memory: Any  # what `attend` keeps of the source; () without attention
    carried_BF: (
        Tensor  # bahdanau: the last output, which is in the query; luong: the attention output, which is fed back
    )
    position_B: Tensor


class Bridge(nn.Module):
    """From a summary to the first state of any decoder whose state is vectors: `tanh(W c + b)` for each leaf."""

    def __init__(self, width: int, initial: State, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        shapes = list(leaves(initial))
        for name, leaf in shapes:
            if leaf.dim() != 2 or not leaf.is_floating_point() or leaf.shape[1] == 0:
                raise UserError(
                    f"a decoder whose state has {name} cannot begin from a summary: only vectors can",
                    fix="set context to each_step or attention, or choose a recurrent decoder",
                )
        self.maps = nn.ModuleList(make_linear(width, leaf.shape[1], generator=generator) for _, leaf in shapes)

    def forward(self, summary_BC: Tensor, initial: Any) -> Any:
        maps = iter(self.maps)
        return map_state(lambda leaf: torch.tanh(next(maps)(summary_BC)).to(leaf), initial)


@final
class Seq2Seq(ConditionalMachine[DecoderState]):
    """Target tokens in, logits of the next target token out, given a source that `condition` has read.

    The source reaches the decoder by `bridge` (the initial state), `each_step` (an input at every step) or `attend`
    (attention to every position: before the state is updated in Bahdanau's style, after it in Luong's). Without
    attention, `combine` makes the output deep: `tanh(W [h; c; y])` of state, summary and last token, not h alone.
    """

    def __init__(
        self,
        *,
        reader: Reader,
        embedding: Embedding,
        stack: Stack,
        head: CategoricalHead,
        stack_width: int,
        input_dropout: Dropout,
        dropout: Dropout,
        enter: nn.Linear | None = None,
        bridge: Bridge | None = None,
        each_step: bool = False,
        attend: Attend | Looks | None = None,
        style: Literal["bahdanau", "luong"] = "bahdanau",
        combine: nn.Linear | None = None,
        ask: nn.Linear | None = None,
        input_feeding: bool = True,
        output_edges: bool = True,
    ) -> None:
        super().__init__()
        self.reader = reader
        self.embedding = embedding
        self.input_dropout = input_dropout
        self.stack = stack
        self.dropout = dropout  # after attention; the layers' outputs have had theirs
        self.head = head
        self.stack_width = stack_width
        self.enter = enter  # with residual layers, a map from all inputs to their width
        self.bridge = bridge
        self.each_step = each_step
        self.attend = attend
        self.style: Literal["bahdanau", "luong"] = style
        self.combine = combine
        self.ask = ask  # bahdanau: a map from the token that was written last into the query
        self.input_feeding = input_feeding
        self.output_edges = output_edges
        self.looks = None if attend is None else "attend.weights"

    @property
    def vocab(self) -> int:
        return len(self.head.bias_V)

    def begin(self, encoded: Encoded) -> DecoderState:
        batch = encoded.summary_BC.shape[0]
        first = self.stack.init_state(batch)
        return DecoderState(
            mixer=first if self.bridge is None else self.bridge(encoded.summary_BC, first),
            context_BC=encoded.summary_BC
            if self.each_step or (self.attend is None and self.combine is not None)
            else encoded.summary_BC[:, :0],
            memory=() if self.attend is None else self._remember(encoded),
            carried_BF=encoded.summary_BC.new_zeros(batch, self.stack_width if self._recurs else 0),
            position_B=torch.zeros_like(encoded.length_B),
        )

    def _remember(self, encoded: Encoded) -> Any:
        assert self.attend is not None
        return self.attend.remember(encoded.outputs_BSC, encoded.outputs_BSC, encoded.length_B)

    @property
    def _recurs(self) -> bool:
        """Whether a step's input depends on the output of the step before."""
        return self.attend is not None and (self.style == "bahdanau" or self.input_feeding)

    def embed(self, target_BT: Tensor) -> Tensor:
        e_BTE: Tensor = self.embedding(target_BT)
        return e_BTE

    def follow(
        self, e_BTE: Tensor, state: DecoderState, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, DecoderState]:
        """Everything that is not recurrent is computed for all time steps at once."""
        time = e_BTE.shape[1]
        e_BTE = self._admit(e_BTE)
        context_BTC = state.context_BC[:, None].expand(-1, time, -1)
        given_BTX = self._given(e_BTE, context_BTC)
        if self._recurs:
            y_BTX, after = self._unrolled(given_BTX, state, lengths_B)
        else:
            y_BTX, mixer = self.stack(self._enter(given_BTX), state.mixer, lengths_B)
            after = state._replace(mixer=mixer)
        position_BT = state.position_B[:, None] + torch.arange(time, device=e_BTE.device)
        logits_BTV = past_end(self._write(y_BTX, context_BTC, e_BTE, state.memory, position_BT), lengths_B)
        read_B = torch.full_like(state.position_B, time) if lengths_B is None else lengths_B.clamp(max=time)
        return logits_BTV, after._replace(position_B=state.position_B + read_B)

    def step(self, token_B: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        e_B1E = self._admit(self.embed(token_B[:, None]))
        context_B1C = state.context_BC[:, None]
        y_BX, after = self._move(self._given(e_B1E, context_B1C)[:, 0], state)
        logits_B1V = self._write(y_BX[:, None], context_B1C, e_B1E, state.memory, state.position_B[:, None])
        return logits_B1V[:, 0], after

    def _unrolled(
        self, given_BTX: Tensor, state: DecoderState, lengths_B: Tensor | None
    ) -> tuple[Tensor, DecoderState]:
        outputs, now = [], state
        with one_sequence():
            for t, given_BX in enumerate(given_BTX.unbind(1)):
                y_BX, after = self._move(given_BX, now)
                if lengths_B is not None:  # the rest of the state does not change
                    active_B = t < lengths_B
                    after = after._replace(
                        mixer=hold(active_B, new=after.mixer, old=now.mixer),
                        carried_BF=hold(active_B, new=after.carried_BF, old=now.carried_BF),
                    )
                outputs.append(y_BX)
                now = after
        # Under autocast a step may return a lower precision; the state keeps its own.
        return torch.stack(outputs, dim=1), map_state(lambda new, old: new.to(old.dtype), now, state)

    def _move(self, given_BX: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """The recurrent part of a step; `_write` turns its output into logits."""
        position_B1 = state.position_B[:, None]
        if self.attend is not None and self.style == "bahdanau":
            query_BD = state.carried_BF if self.ask is None else state.carried_BF + self.ask(given_BX)
            attended_BC = self.attend(query_BD[:, None], state.memory, position_B1)[:, 0]
            y_BD, mixer = self.stack.step(self._enter(torch.cat([given_BX, attended_BC], dim=-1)), state.mixer)
            y_BX, carried_BF = torch.cat([y_BD, attended_BC], dim=-1), y_BD
        else:
            x_BX = torch.cat([given_BX, state.carried_BF], dim=-1)
            y_BX, mixer = self.stack.step(self._enter(x_BX), state.mixer)
            carried_BF = state.carried_BF
            if self._recurs:
                y_BX = carried_BF = self._attended(y_BX[:, None], state.memory, position_B1)[:, 0]
        return y_BX, state._replace(mixer=mixer, carried_BF=carried_BF, position_B=state.position_B + 1)

    def _given(self, e_BTE: Tensor, context_BTC: Tensor) -> Tensor:
        """What enters the layers at each step, besides what attention finds."""
        return torch.cat([e_BTE, context_BTC], dim=-1) if self.each_step else e_BTE

    def _write(self, y_BTX: Tensor, context_BTC: Tensor, e_BTE: Tensor, memory: Any, position_BT: Tensor) -> Tensor:
        if self.combine is None:
            return self._logits(y_BTX)
        if self.attend is None or self.style == "bahdanau":
            y_BTX = torch.tanh(self.combine(torch.cat([y_BTX, context_BTC, e_BTE], dim=-1)))
        elif not self._recurs:
            y_BTX = self._attended(y_BTX, memory, position_BT)
        return self._logits(self.dropout(y_BTX))

    def _logits(self, y_BTX: Tensor) -> Tensor:
        return self.head(y_BTX)

    def _enter(self, x: Tensor) -> Tensor:
        if self.enter is None:
            return x
        entered: Tensor = self.enter(x)
        return entered

    def _admit(self, e_BTE: Tensor) -> Tensor:
        e_BTE = self.input_dropout(e_BTE)
        return e_BTE if self.output_edges else torch.zeros_like(e_BTE)

    def _attended(self, y_BTD: Tensor, memory: Any, position_BT: Tensor) -> Tensor:
        """Luong: the new output is the query, and is concatenated with the attention output."""
        assert self.attend is not None
        assert self.combine is not None
        attended_BTC = self.attend(y_BTD, memory, position_BT)
        return torch.tanh(self.combine(torch.cat([attended_BTC, y_BTD], dim=-1)))

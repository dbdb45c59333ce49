"""A machine over a stream of documents, each of which begins with one symbol, and what it may be fed back there.

B batch, T time, V vocabulary.
"""

from collections.abc import Callable
from typing import Any, Literal, final

import torch
from torch import Tensor

from statewise.core import Machine, State, forward_with_resets, reset_rows, rows
from statewise.training import Feedback, feed_tokens


@final
class Documents(Machine[State]):
    """A machine whose rows start afresh before every `begin_id` that is read: a document begins there."""

    def __init__(self, machine: Machine[Any], *, begin_id: int) -> None:
        super().__init__()
        self.machine, self.begin_id = machine, begin_id

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        return self.machine.sample_input(batch, time, generator=generator)

    def init_state(self, batch: int) -> State:
        state: State = self.machine.init_state(batch)
        return state

    def forward(
        self, tokens_BT: Tensor, state: "State | None" = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, State]:
        assert lengths_B is None, "windows of a stream are all of one length"
        state = self.init_state(len(tokens_BT)) if state is None else state
        return read_with_resets(self.machine, tokens_BT, state, tokens_BT == self.begin_id, initial=self.init_state(1))

    def step(self, token_B: Tensor, state: State) -> tuple[Tensor, State]:
        begins_B = token_B == self.begin_id
        if bool(begins_B.any()):
            initial = rows(self.init_state(1), torch.zeros_like(token_B))
            state = reset_rows(state, begins_B, initial=initial)
        return self.machine.step(token_B, state)


def read_with_resets(
    read: Callable[[Tensor, Any, Tensor | None], tuple[Tensor, Any]],
    inputs_BT: Tensor,
    state: Any,
    resets_BT: Tensor | None,
    *,
    initial: State,
) -> tuple[Tensor, Any]:
    """Read a window in which documents may begin: there the state starts afresh, from `initial`, which has one row."""
    if resets_BT is None or not resets_BT.any():
        return read(inputs_BT, state, None)
    return forward_with_resets(read, inputs_BT, state, resets_BT, initial=initial)


def feed_within(choice: Literal["sample", "best"], *, begin_id: int, end_id: int) -> Feedback:
    """What a model gave, as its next input, inside a document: where the truth begins one, it is told so.

    And as long as the truth goes on, what is fed back does too: an end would start the state afresh in the middle.
    """
    feed = feed_tokens(choice)

    def feedback(logits_BV: Tensor, truth_B: Tensor, uniform_B: Tensor) -> Tensor:
        going_BV = logits_BV.detach().index_fill(1, truth_B.new_tensor([end_id]), -torch.inf)
        return torch.where(truth_B == begin_id, truth_B, feed(going_BV, truth_B, uniform_B))

    return feedback
